//! Pins: what somebody ordered to be kept, word for word.
//!
//! Every summary shows every pin, so there may not be too many: whoever pins asks first, and is told why not.

use thiserror::Error;

use crate::{event::Pin, id::Seq};

/// How many pins a session may have.
pub const MAX_PINS: usize = 20;

/// How many characters a pin may have.
pub const MAX_PIN_CHARS: usize = 500;

/// Why something cannot be pinned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PinError {
    /// There are as many pins as may be.
    #[error(
        "cannot pin: the session has {MAX_PINS} pins already, which is the most; every summary shows all of them. Put \
         several into one, or start a new session"
    )]
    TooMany,
    /// It is too long.
    #[error(
        "cannot pin {length} characters: a pin may have {MAX_PIN_CHARS}, because every summary shows it in full. Pin the \
         words that matter"
    )]
    TooLong {
        /// Its characters.
        length: usize,
    },
    /// There are no words in it.
    #[error("cannot pin nothing: the text is empty. Pin the words that matter, or an event")]
    Empty,
    /// There is no such event.
    #[error("cannot pin event {event}: the session ends with event {head}")]
    NoSuchEvent {
        /// The event.
        event: Seq,
        /// The newest there is.
        head: Seq,
    },
}

/// Whether `new` may be pinned beside the pins there are. What is pinned already may be pinned again.
pub fn check_pin<'p>(pins: impl IntoIterator<Item = &'p Pin>, new: &Pin) -> Result<(), PinError> {
    if let Pin::Text(text) = new {
        let length = text.trim().chars().count();
        if length > MAX_PIN_CHARS {
            return Err(PinError::TooLong { length });
        }
        if length == 0 {
            return Err(PinError::Empty);
        }
    }
    let mut known: Vec<&Pin> = Vec::new();
    for pin in pins {
        if pin == new {
            return Ok(());
        }
        if known.len() < MAX_PINS && !known.contains(&pin) {
            known.push(pin);
        }
    }
    if known.len() < MAX_PINS { Ok(()) } else { Err(PinError::TooMany) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_beyond_the_cap_is_refused_and_repeating_a_pin_is_not() {
        let pins: Vec<Pin> = (0..MAX_PINS as u64).map(|seq| Pin::Event(Seq(seq))).collect();
        assert_eq!(check_pin(&pins[1..], &pins[0]), Ok(()));
        assert_eq!(check_pin(&pins, &Pin::Text("one more".into())), Err(PinError::TooMany));
        assert_eq!(check_pin(&pins, &pins[3]), Ok(()));
        let twice: Vec<Pin> = vec![Pin::Event(Seq(1)); 100];
        assert_eq!(check_pin(&twice, &Pin::Event(Seq(2))), Ok(()));
    }

    #[test]
    fn a_pin_that_is_too_long_is_refused_with_its_length() {
        let refused = check_pin([], &Pin::Text("x".repeat(501))).unwrap_err();
        assert_eq!(refused, PinError::TooLong { length: 501 });
        assert!(refused.to_string().starts_with("cannot pin 501 characters: a pin may have 500"));
        assert_eq!(check_pin([], &Pin::Text(" \n".into())), Err(PinError::Empty));
    }
}
