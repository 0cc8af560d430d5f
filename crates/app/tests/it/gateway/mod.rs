//! The gateway, between a client and a provider that are both played here, on bare sockets: what passes is compared byte
//! by byte with what passes without it, and what is recorded is read back from the database.

mod agent;
mod bounds;
mod broken;
mod canary;
mod certificates;
mod compacted;
mod compaction_items;
mod composing;
mod counting;
mod crowd;
mod doors;
mod faults;
mod functions;
mod history_tools;
mod hostile;
mod http;
mod injection;
mod intruders;
mod model;
mod overflowing;
mod own_summaries;
mod played;
mod recalls;
mod recorded;
mod reloading;
mod rights;
mod stopping;
mod stores;
mod summarising;
mod talk;
mod token_counts;
mod tool_output;
mod transparency;
