//! The fixtures: requests, and streams with the response that each should amount to.

use std::{
    fs,
    path::{Path, PathBuf},
};

use epitome_wire::Format;

/// A file of a format's folder.
pub(crate) struct Fixture {
    pub(crate) format: Format,
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Fixture {
    fn is_stream(&self) -> bool {
        Path::new(&self.name).extension().is_some_and(|extension| extension == "sse")
    }
}

/// Every request.
pub(crate) fn requests() -> Vec<Fixture> {
    let is_request = |file: &Fixture| !file.is_stream() && !file.name.contains(".response.");
    let requests: Vec<Fixture> = all().into_iter().filter(is_request).collect();
    assert!(requests.len() >= 12, "fixtures are missing");
    requests
}

/// Every stream, with the response in one piece.
pub(crate) fn streams() -> Vec<(Fixture, String)> {
    let all = all();
    let twin = |stream: &Fixture| {
        let name = stream.name.replace(".sse", ".response.json");
        let twin = all.iter().find(|file| file.format == stream.format && file.name == name);
        twin.unwrap_or_else(|| panic!("{name} is missing")).text.clone()
    };
    let streams: Vec<(Fixture, String)> = all
        .iter()
        .filter(|file| file.is_stream())
        .map(|file| {
            let stream = Fixture { format: file.format, name: file.name.clone(), text: file.text.clone() };
            (stream, twin(file))
        })
        .collect();
    assert!(streams.len() >= 6, "fixtures are missing");
    streams
}

/// One request by name.
pub(crate) fn request(format: Format, name: &str) -> String {
    let found = requests().into_iter().find(|file| file.format == format && file.name == name);
    found.unwrap_or_else(|| panic!("{name} is missing")).text
}

fn all() -> Vec<Fixture> {
    let mut files = Vec::new();
    for format in crate::SCRIPTED {
        let folder =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format.to_string());
        for entry in fs::read_dir(&folder).expect("the fixtures are part of the crate") {
            let path = entry.expect("a readable folder").path();
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            files.push(Fixture {
                format,
                name,
                text: fs::read_to_string(&path).expect("fixtures are UTF-8"),
            });
        }
    }
    files.sort_by(|one, other| (one.format, &one.name).cmp(&(other.format, &other.name)));
    files
}
