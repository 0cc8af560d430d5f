//! Checks that hold for every picture.

use crate::replay::{ReplayFate, ReplayRow, ReplayedSummary};
use epitome::core::{Tokens, cost::CacheMiss, event::Usage, model_view::EpochCause, profile::Money};

use super::{super::sample_session, *};

/// The elements of a picture, in order, each with its attributes. Fails if it is not well-formed XML.
fn parsed(picture: &str) -> Vec<(String, Vec<(String, String)>)> {
    let (mut elements, mut open, mut rest) = (Vec::new(), Vec::new(), picture);
    while let Some(start) = rest.find('<') {
        check_words(&rest[..start]);
        let end = start + rest[start..].find('>').expect("an element ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "an element is closed that is not open");
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut left) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(name.chars().all(|letter| letter.is_ascii_alphabetic()), "{name}");
        let mut attributes = Vec::new();
        while let Some((key, more)) = left.trim_start().split_once("=\"") {
            let (value, more) = more.split_once('"').expect("a value ends");
            check_words(value);
            attributes.push((key.to_owned(), value.to_owned()));
            left = more;
        }
        assert!(left.trim().is_empty(), "{left}");
        elements.push((name.to_owned(), attributes));
        if !closed {
            open.push(name.to_owned());
        }
    }
    assert_eq!(rest.trim(), "");
    assert!(open.is_empty(), "never closed: {open:?}");
    elements
}

fn check_words(words: &str) {
    for part in words.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|name| part.starts_with(name));
        assert!(known, "&{part}");
    }
    assert!(words.chars().all(|letter| letter == '\n' || !letter.is_control()), "{words:?}");
}

/// The points of a path that consists of `M`, `L`, `V`, `H` and `Z`.
fn points(data: &str) -> Vec<(f64, f64)> {
    let (mut points, mut here) = (Vec::new(), (0.0, 0.0));
    let starts: Vec<_> = data.match_indices(['M', 'L', 'V', 'H', 'Z']).map(|(start, _)| start).collect();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(data.len());
        let (command, numbers) = data[*start..end].split_at(1);
        let numbers: Vec<f64> =
            numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        here = match (command, numbers.as_slice()) {
            ("M" | "L", [x, y]) => (*x, *y),
            ("H", [x]) => (*x, here.1),
            ("V", [y]) => (here.0, *y),
            ("Z", []) => here,
            other => panic!("{other:?}"),
        };
        points.push(here);
    }
    points
}

/// Draws a picture and makes the checks that hold for every one.
fn drawn(title: &PictureTitle, series: &[PolicySeries<'_>]) -> String {
    let picture = svg(title, series);
    assert_eq!(picture, svg(title, series), "the same picture every time");
    assert!(!picture.contains("NaN") && !picture.contains("inf\""), "{picture}");
    let elements = parsed(&picture);
    let value = |attributes: &[(String, String)], key: &str| -> f64 {
        let found = attributes.iter().find(|(name, _)| name == key);
        found.unwrap_or_else(|| panic!("no {key} in {attributes:?}")).1.parse().expect("a number")
    };
    let (name, root) = &elements[0];
    assert_eq!(name, "svg");
    let (width, height) = (value(root, "width"), value(root, "height"));
    let check = |x: f64, y: f64, what: &str| {
        let inside = (0.0..=width).contains(&x) && (0.0..=height).contains(&y);
        assert!(inside, "{what} at {x}, {y} is outside of {width} × {height}");
    };
    for (name, attributes) in &elements[1..] {
        match name.as_str() {
            "text" => check(value(attributes, "x"), value(attributes, "y"), name),
            "rect" => {
                let (x, y) = (value(attributes, "x"), value(attributes, "y"));
                check(x, y, name);
                check(x + value(attributes, "width"), y + value(attributes, "height"), name);
            }
            "line" => {
                check(value(attributes, "x1"), value(attributes, "y1"), name);
                check(value(attributes, "x2"), value(attributes, "y2"), name);
            }
            "path" => {
                let (_, data) = attributes.iter().find(|(key, _)| key == "d").expect("a path");
                for (x, y) in points(data) {
                    check(x, y, name);
                }
            }
            "title" | "style" | "g" => {}
            other => panic!("an element that no reader expects: {other}"),
        }
        let outside = ["href", "src", "style", "onload", "onclick"];
        assert!(attributes.iter().all(|(key, _)| !outside.contains(&key.as_str())), "{attributes:?}");
    }
    picture
}

fn count(picture: &str, what: &str) -> usize {
    picture.matches(what).count()
}

#[test]
fn a_picture_names_every_policy_its_regions_its_marks_and_its_source() {
    let session = sample_session::session(200);
    let picture = drawn(&sample_session::title(), &session.series());
    for words in [
        ">Make the parser keep comments<",
        ">none (full history)<",
        ">sliding<",
        ">epitome<",
        ">window 100k<",
        ">138 too large<",
        ">What it has cost so far, in dollars<",
        ">pauses<",
        ">taken out<",
        ">vs none<",
        "reset: over the trigger",
        "reset: the cache was cold",
        "tokens taken out; summary by a model<",
        "summary without a model<",
        "Made by: epitome replay session.jsonl",
    ] {
        assert!(picture.contains(words), "{words}");
    }
    for (_, words, _) in REGIONS {
        assert_eq!(count(&picture, &format!(">{words}<")), 1, "{words}");
    }
    // One in the legend, the others in the rows: one a reset.
    let resets: u64 = session.series().iter().map(|series| series.totals().marks.reset()).sum();
    assert_eq!(count(&picture, "<rect class=\"reset\"") as u64, 1 + resets);
    assert_eq!(count(&picture, "<rect class=\"evicted\"") as u64, 1 + resets);
}

#[test]
fn the_longest_pause_is_written_wherever_it_is() {
    for place in [1, 2, 50, 98, 99] {
        let mut session = sample_session::session(100);
        for policy in &mut session.policies {
            let call = &mut policy.calls[place];
            (call.pause, call.missed) = (Some(Duration::from_secs(700_000)), Some(CacheMiss::Expired));
        }
        let picture = drawn(&sample_session::title(), &session.series());
        assert_eq!(count(&picture, ">8 d 2 h</text>"), 2, "at call {place}");
    }
}

#[test]
fn rows_share_one_scale() {
    let session = sample_session::crowd(300, 13);
    let picture = drawn(&sample_session::title(), &session.series());
    let lines: Vec<_> = picture.lines().filter(|line| line.ends_with(">100k</text>")).collect();
    assert_eq!(lines.len(), 13);
    let place = |line: &str| points_of(line).1;
    let zeros: Vec<_> = picture.lines().filter(|line| line.ends_with(">0</text>")).map(place).collect();
    let heights: Vec<_> =
        lines.iter().zip(zeros).map(|(line, zero)| format!("{:.1}", zero - place(line))).collect();
    assert!(heights.windows(2).all(|pair| pair[0] == pair[1]), "{heights:?}");
}

fn points_of(text: &str) -> (f64, f64) {
    let (_, attributes) = parsed(text).remove(0);
    let number =
        |key: &str| attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value.parse().unwrap());
    (number("x").unwrap(), number("y").unwrap())
}

#[test]
fn words_beside_the_chart_never_cover_each_other() {
    for policies in [1, 2, 5, 13, 20] {
        let session = sample_session::crowd(150, policies);
        let picture = drawn(&sample_session::title(), &session.series());
        let mut places: Vec<_> = picture
            .lines()
            .filter(|line| line.starts_with("<text"))
            .map(points_of)
            .filter(|(x, _)| (x - BESIDE).abs() < 0.1)
            .map(|(_, y)| y)
            .collect();
        places.sort_by(f64::total_cmp);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 11.0), "{policies}: {places:?}");
    }
}

#[test]
fn hostile_names_are_only_words() {
    let session = sample_session::session(30);
    let evil = "</title></text><script>alert(1)</script>\"'&amp;\u{1b}[2J\u{0}\u{202e}日本語 ".repeat(30);
    let title = PictureTitle {
        session: evil.clone(),
        model: evil.clone(),
        source: evil.clone(),
        notes: vec![evil.clone(), evil.replace(' ', "_")],
        ..sample_session::title()
    };
    let series: Vec<_> =
        session.series().into_iter().map(|series| PolicySeries { policy: &evil, ..series }).collect();
    let picture = drawn(&title, &series);
    assert!(!picture.contains("<script"));
    assert!(picture.len() < 100_000, "{} bytes", picture.len());
}

#[test]
fn nothing_one_call_and_calls_of_nothing_are_drawn() {
    let title = sample_session::title();
    assert!(drawn(&title, &[]).contains("no calls to draw"));
    assert!(drawn(&title, &[PolicySeries { policy: "empty", calls: &[] }]).contains("no calls to draw"));
    assert!(drawn(&PictureTitle::default(), &[]).contains("no calls to draw"));
    let session = sample_session::session(1);
    assert!(drawn(&title, &session.series()).contains("1 model call  ·  3 policies"));
    let bare = |call: &ReplayRow| ReplayRow {
        tokens: Tokens(0),
        regions: RegionSizes::default(),
        usage: Usage::default(),
        money: None,
        at: None,
        pause: None,
        evicted: Tokens(0),
        ..call.clone()
    };
    let calls: Vec<_> = sample_session::session(5).policies[0].calls.iter().map(bare).collect();
    let series = [
        PolicySeries { policy: "nothing", calls: &calls },
        PolicySeries { policy: "short", calls: &calls[..2] },
    ];
    let picture = drawn(&PictureTitle { window: None, ..title.clone() }, &series);
    assert!(picture.contains("the model&#39;s prices are not known"));
    assert!(drawn(&PictureTitle { window: Some(Tokens(0)), ..title }, &series).contains(">nothing<"));
}

#[test]
fn the_largest_numbers_stay_inside() {
    let mut session = sample_session::session(20);
    for policy in &mut session.policies {
        let call = &mut policy.calls[7];
        call.tokens = Tokens(u64::MAX);
        call.regions.results = Tokens(u64::MAX);
        call.evicted = Tokens(u64::MAX);
        call.money = Some(Money(u64::MAX));
        call.pause = Some(Duration::MAX);
        call.at = Some(Timestamp(i64::MAX));
        call.fate = ReplayFate::Refused;
        call.illegal = 3;
        call.cause = Some(EpochCause::Asked);
        call.summarised = Some(ReplayedSummary { usage: Usage::default(), money: Some(Money(u64::MAX)) });
    }
    for window in [None, Some(Tokens(1)), Some(sample_session::WINDOW), Some(Tokens(u64::MAX))] {
        let picture = drawn(&PictureTitle { window, ..sample_session::title() }, &session.series());
        assert!(picture.contains("could not be made to fit"));
        assert!(picture.contains("1 refused, 1 illegal<"));
    }
}

#[test]
fn long_sessions_are_bounded_in_bytes_and_lose_no_mark() {
    let session = sample_session::crowd(10_000, 13);
    let picture = drawn(&sample_session::title(), &session.series());
    assert!(picture.len() < 3_000_000, "{} bytes", picture.len());
    assert!(picture.contains("Of up to 10 calls beside each other the largest is drawn"));
    let resets: u64 = session.series().iter().map(|series| series.totals().marks.reset()).sum();
    let mut told = 0;
    for words in picture.split("reset: ").skip(2) {
        let words = words.split(['<', ';']).next().unwrap_or("");
        let often = words.split_once(" (").map(|(_, often)| often.trim_end_matches(" times)"));
        told += often.map_or(1, |often| often.parse::<u64>().expect("a number"));
    }
    assert_eq!(told, resets);
}
