//! Many clients at a time, when the gateway is told to stop, when it is killed, and when there are two of it: nothing that
//! a client was told to the end is lost, and nothing is there twice.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use super::{
    super::harness::Bench,
    played::{Gateway, RECORDING, eventually},
    recorded::Recorded,
    talk::{Talk, parrot, told},
};

/// The conversation of a client, known by its number: some have an id, some are streamed.
fn talk(number: usize) -> Talk {
    let talk = if number.is_multiple_of(2) { Talk::called(&format!("s-{number}")) } else { Talk::nameless() };
    if number % 4 < 2 { talk.streamed() } else { talk }
}

#[test]
fn told_to_stop_the_gateway_finishes_every_stream() {
    for mode in RECORDING {
        const CLIENTS: usize = 24;
        let provider = parrot();
        let bench = Arc::new(Bench::new());
        let mut gateway = Gateway::on(&bench, &provider.url(), &["--mode", mode], "");
        let (tell, begun) = mpsc::channel();
        let words = "x ".repeat(200);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (tell, gateway, words) = (tell.clone(), &gateway, &words);
                    scope.spawn(move || {
                        let mut talk = Talk::nameless().streamed();
                        talk.says(&format!("{number} {words}"));
                        let mut wire = talk.asks(gateway);
                        let head = wire.until(b"\r\n\r\n").expect("a head");
                        tell.send(()).expect("somebody listens");
                        let mut body = Vec::new();
                        while let Some(chunk) = wire.chunk().filter(|chunk| !chunk.is_empty()) {
                            body.extend(chunk);
                        }
                        assert!(head.starts_with(b"HTTP/1.1 200"));
                        assert!(body.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&body));
                    })
                })
                .collect();
            for _ in 0..CLIENTS {
                begun.recv().expect("they all begin");
            }
            gateway.terminate();
            for client in clients {
                client.join().expect("a whole answer");
            }
        });
        assert!(gateway.child.wait().expect("it ends").success(), "{}", gateway.log());
        let recorded = Recorded::on(&bench);
        assert_eq!(recorded.endings(CLIENTS), vec!["complete"; CLIENTS]);
        assert_eq!(recorded.sessions().len(), CLIENTS);
        recorded.check_health();
    }
}

#[test]
fn killed_under_load_the_gateway_has_recorded_all_that_clients_were_told() {
    for mode in RECORDING {
        const CLIENTS: usize = 12;
        let provider = parrot();
        let bench = Arc::new(Bench::new());
        // Only where nothing may pass unrecorded is an answer held for as long as it takes.
        let mut gateway = Gateway::on(&bench, &provider.url(), &["--fail-closed", "--mode", mode], "");
        let whole = AtomicUsize::new(0);
        let talks: Vec<(Talk, Vec<String>)> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (address, whole) = (gateway.address, &whole);
                    scope.spawn(move || {
                        let (mut talk, mut story) = (talk(number), Vec::new());
                        for turn in 0.. {
                            let words = format!("{number}.{turn}");
                            talk.says(&words);
                            let Some(answer) = talk.asks_if_there(address).as_ref().and_then(told) else {
                                break;
                            };
                            talk.heard(&answer);
                            story.extend([words, answer]);
                            whole.fetch_add(1, Ordering::Relaxed);
                        }
                        (talk, story)
                    })
                })
                .collect();
            eventually("many answers have come", || whole.load(Ordering::Relaxed) >= 5 * CLIENTS);
            gateway.child.kill().expect("it runs");
            clients.into_iter().map(|client| client.join().expect("no panic")).collect()
        });
        gateway.child.wait().expect("it is dead");
        let healthy = bench.json(&["doctor"]).remove(0);
        assert_eq!(healthy["healthy"], true, "{healthy:#}");
        let recorded = Recorded::on(&bench);
        let threads = recorded.threads();
        let stories: Vec<_> = threads.iter().map(|thread| recorded.story(thread.id)).collect();
        for (_, story) in &talks {
            assert!(
                stories.iter().any(|recorded| recorded.starts_with(story)),
                "{story:?} is not in {stories:?}"
            );
        }
        assert_eq!((recorded.sessions().len(), threads.len()), (CLIENTS, CLIENTS));

        // They ask again what they were not told, and go on where they were.
        let gateway = Gateway::on(&bench, &provider.url(), &["--fail-closed", "--mode", mode], "");
        for (mut talk, _) in talks {
            let answer = talk.asks(&gateway).answer();
            talk.heard(&told(&answer).expect("a whole answer"));
            talk.goes_on(&gateway, "after");
        }
        // An answer that was recorded and not told is asked for again: in a fork, where that is on record before the answer.
        let forks = if mode == "compact" { CLIENTS } else { 0 };
        let (sessions, threads) = (recorded.sessions().len(), recorded.threads().len());
        assert_eq!(sessions, CLIENTS);
        assert!((CLIENTS..=CLIENTS + forks).contains(&threads), "{threads}");
        recorded.check_health();
    }
}

#[test]
fn two_gateways_on_one_database_record_one_session_and_nothing_twice() {
    for mode in RECORDING {
        const CLIENTS: usize = 8;
        const TURNS: usize = 6;
        let provider = parrot();
        let bench = Arc::new(Bench::new());
        let gateways = [0; 2].map(|_| Gateway::on(&bench, &provider.url(), &["--mode", mode], ""));
        let told: BTreeMap<String, Vec<String>> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let gateways = &gateways;
                    scope.spawn(move || {
                        let (mut talk, mut story) = (talk(number), Vec::new());
                        for turn in 0..TURNS {
                            let words = format!("{number}.{turn}");
                            let answer = talk.goes_on(&gateways[(number + turn) % 2], &words);
                            story.extend([words, answer]);
                        }
                        (story[0].clone(), story)
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("no panic")).collect()
        });
        let recorded = Recorded::on(&bench);
        assert_eq!(recorded.endings(CLIENTS * TURNS), vec!["complete"; CLIENTS * TURNS]);
        let threads = recorded.threads();
        assert_eq!((recorded.sessions().len(), threads.len()), (CLIENTS, CLIENTS), "{threads:#?}");
        for thread in threads {
            let story = recorded.story(thread.id);
            assert_eq!(Some(&story), told.get(&story[0]));
        }
        assert_eq!(provider.asked(), CLIENTS * TURNS);
        recorded.check_health();
    }
}
