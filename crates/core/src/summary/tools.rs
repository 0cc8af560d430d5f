//! What a call of a tool did, whichever agent's tool it is.

/// Something a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It read a file.
    Read {
        /// The file.
        path: String,
        /// Which lines, from and to, if not all.
        lines: Option<(u64, u64)>,
    },
    /// It changed a file.
    Changed {
        /// The file.
        path: String,
        /// How.
        how: Change,
        /// Which lines of it, where that can be told: each run from and to.
        lines: Vec<(u64, u64)>,
    },
    /// It ran a command.
    Ran {
        /// The command line.
        command: String,
        /// How it ended, where that can be told.
        exit: Option<i64>,
    },
    /// It looked for something.
    Searched {
        /// For what.
        what: String,
    },
    /// It wrote down what is to be done.
    Planned {
        /// The steps, in order.
        steps: Vec<Todo>,
    },
}

/// How a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// It is new, or was written as a whole.
    Written,
    /// A part of it was changed.
    Edited,
    /// It is gone.
    Deleted,
    /// It has another name now; the path is the new one.
    Moved,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Todo {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub state: TodoState,
}

/// How far a step of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TodoState {
    /// Not begun.
    Open,
    /// Being worked on.
    Active,
    /// Done.
    Done,
    /// Given up.
    Dropped,
}
