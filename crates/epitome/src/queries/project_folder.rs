//! The project of sessions that a gateway recorded: requests name the folder in which their agent works, in the
//! instructions or in a block beside the first message, and no field has it.

use epitome_core::Seq;
use epitome_store::{
    Store, StoreError,
    records::{SessionFilter, SessionRow},
};

use crate::import::{project_label, project_of};

/// Number of a session's first events in which its folder is sought.
const FIRST_EVENTS: usize = 8;

/// Labels the latest sessions whose project is not known yet and stands in their first messages. Returns their number.
pub fn label_projects(store: &dyn Store, principal: Option<&str>, latest: usize) -> Result<u64, StoreError> {
    let filter = SessionFilter { principal: principal.map(str::to_owned), label: None };
    let mut labelled = 0;
    for session in store.latest_sessions(&filter, latest)? {
        if project_of(&session).is_none()
            && let Some(folder) = recorded_folder(store, &session)?
        {
            store.add_label(session.id, &project_label(&folder))?;
            labelled += 1;
        }
    }
    Ok(labelled)
}

fn recorded_folder(store: &dyn Store, session: &SessionRow) -> Result<Option<String>, StoreError> {
    let Some(head) = session.head else { return Ok(None) };
    let first = store.read(head, Seq(1), FIRST_EVENTS)?;
    Ok(first.iter().find_map(|logged| folder_in(&logged.event.fact.text())))
}

/// The folder that a client names as its own.
fn folder_in(text: &str) -> Option<String> {
    let tagged =
        text.split_once("<cwd>").and_then(|(_, rest)| rest.split_once("</cwd>")).map(|(folder, _)| folder);
    let said = || {
        let line = text.lines().find(|line| line.to_ascii_lowercase().contains("working directory:"))?;
        line.split_once(':').map(|(_, folder)| folder)
    };
    let folder = tagged.or_else(said)?.trim().trim_matches(['`', '"']);
    let is_path = folder.starts_with(['/', '~']) || folder.get(1..3) == Some(":\\");
    (is_path && folder.len() <= 1024).then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_as_clients_write_it() {
        let check =
            |text: &str, expect: Option<&str>| assert_eq!(folder_in(text).as_deref(), expect, "{text}");
        check("<environment_context>\n  <cwd>/src/app</cwd>\n</environment_context>", Some("/src/app"));
        check(
            "# Environment\n - Primary working directory: /home/me/app\n - Platform: linux",
            Some("/home/me/app"),
        );
        check("<env>\n  Working directory: /srv\n</env>", Some("/srv"));
        check("Current working directory: C:\\code", Some("C:\\code"));
        check("the working directory: it is clean", None);
        check("nothing", None);
    }
}
