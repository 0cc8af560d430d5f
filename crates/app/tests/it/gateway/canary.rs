//! Keys pass and leave no trace: whatever happens to a request, no key that was shown or configured is in the database, a
//! log, a metric or an answer of the gateway's own.

use std::{fs, net::TcpListener, sync::Arc};

use super::{
    super::harness::Bench,
    http::Message,
    played::{Gateway, Provider, SECRETS, Setup, Step, get, ok, post},
    recorded::Recorded,
};

const BODY: &str = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

/// Where clients show keys, and which.
const SHOWN: &str = "Authorization: Bearer sk-canary-bearer\r\nx-api-key: sk-canary-api\r\n\
                     Proxy-Authorization: Basic sk-canary-proxy\r\nCookie: key=sk-canary-cookie\r\n\
                     api-key: sk-canary-azure\r\nx-goog-api-key: sk-canary-google\r\n";

fn has_secret(bytes: &[u8]) -> Option<String> {
    let canaries = ["sk-canary"].into_iter().chain(SECRETS.iter().map(|(_, secret)| *secret));
    let holds = |secret: &&str| {
        bytes.windows(secret.len()).any(|window| window.eq_ignore_ascii_case(secret.as_bytes()))
    };
    canaries.into_iter().find(holds).map(str::to_owned)
}

/// No key is in there.
#[track_caller]
pub(super) fn check_clean(what: &str, bytes: &[u8]) {
    assert_eq!(has_secret(bytes), None, "in {what}: {}", String::from_utf8_lossy(bytes));
}

fn call(path: &str, headers: &str) -> String {
    post(&format!("{path}?key=sk-canary-query&api_key=sk-canary-query"), headers, BODY)
}

/// Sends requests that go well and requests that do not, with keys in all of them; what the gateway said itself.
fn try_everything(gateway: &Gateway, provider: &Provider) -> Vec<Message> {
    let token = |token: &str| format!("x-epitome-token: {token}\r\n{SHOWN}");
    let anna = token("t-anna");
    provider.answers(ok("", "{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}"));
    assert_eq!(gateway.ask(&call("/v1/messages", &anna)).status(), 200);
    let seen = provider.saw();
    assert_eq!(seen.header("x-api-key"), ["sk-configured"]);
    assert!(seen.line.contains("sk-canary-query"), "the query passes");
    provider.answers("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(gateway.ask(&call("/v1/chat/completions", &anna)).status(), 401);
    provider.plays(vec![Step::Send("nonsense\r\n\r\n".into()), Step::Hang]);
    let broken = gateway.ask(&call("/v1/messages", &anna));
    assert_eq!(broken.status(), 502);
    provider.plays(vec![Step::Send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".into()), Step::Hang]);
    gateway.ask(&call("/v1/messages", &anna));
    provider.answers(ok("", "<html>sk"));
    let unreadable = post("/v1/messages", &anna, "{\"key\": sk-canary-body");
    assert_eq!(gateway.ask(&unreadable).status(), 200);
    vec![
        broken,
        gateway.ask(&call("/v1/messages", &token("t-ann"))),
        gateway.ask(&call("/v1/messages", SHOWN)),
        gateway.ask(&call("/v1/messages", &format!("{anna}x-epitome-mode: sk-canary-mode\r\n"))),
        gateway.ask(&call("/sk-canary-path", &anna)),
        gateway.ask(&post("/v1/messages", &anna, &"sk-canary-body".repeat(1_000))),
        // There is nobody, and no key for them.
        gateway.ask(&call("/v1/responses", &anna)),
        gateway.ask(&call("/v1/responses", "Authorization: Bearer t-anna\r\n")),
        gateway.ask(&get("/v1/models?key=sk-canary-query", "")),
        gateway.ask(&get("/readyz?key=sk-canary-query", &anna)),
        gateway.ask(&get("/metrics?key=sk-canary-query", &anna)),
    ]
}

#[test]
fn no_key_is_in_the_database_a_log_a_metric_or_an_answer() {
    for (log, mode) in [("text", "observe"), ("json", "compact")] {
        let provider = Provider::new();
        let bench = Arc::new(Bench::new());
        let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
        let file = format!(
            "[[upstream]]\nname = \"one\"\nurl = \"{}\"\nkey_env = \"PROVIDER_KEY\"\n\
             formats = [\"anthropic\", \"openai-chat\"]\n\
             [[upstream]]\nname = \"nobody\"\nurl = \"http://{nobody}\"\nformats = [\"openai-responses\"]\n\
             [[token]]\nprincipal = \"anna\"\nenv = \"ANNA_TOKEN\"\n[limits]\nbody = \"4KiB\"\n",
            provider.url()
        );
        // All that any library has to say.
        let environment = [("EPITOME_LOG", "trace")];
        let setup =
            Setup { bench: &bench, log, flags: &["--mode", mode], file: &file, environment: &environment };
        let mut gateway = Gateway::start(&setup);
        for answer in try_everything(&gateway, &provider) {
            check_clean("an answer", format!("{answer:?}").as_bytes());
        }
        let recorded = Recorded::on(&bench);
        recorded.endings(5);
        // While it runs there is a write-ahead log, and afterwards there is none.
        check_files(&bench, &gateway);
        gateway.terminate();
        assert!(gateway.child.wait().expect("it ends").success());
        drop(recorded);
        check_files(&bench, &gateway);
    }
}

fn check_files(bench: &Bench, gateway: &Gateway) {
    check_clean("the log", gateway.log().as_bytes());
    let folder = bench.path("log.db").parent().expect("a folder").to_owned();
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        check_clean(&path.display().to_string(), &fs::read(&path).expect("readable"));
        files += 1;
    }
    assert!(files >= 3, "the database, the log and the configuration");
}
