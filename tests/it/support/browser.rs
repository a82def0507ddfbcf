//! A real browser without a window, driven over the DevTools protocol.

use rustix::process::geteuid;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// The browser reads requests from descriptor 3 and writes replies to 4. It ends when they close, also with this process. Then its
/// folder is removed.
const GUARDIAN: &str = r#"
trap '' HUP INT TERM PIPE
directory=$(mktemp -d) && cd "$directory" || exit
HOME="$directory" "$@" --user-data-dir="$directory/profile" 3<&0 4>&1 </dev/null >/dev/null 2>&1
cd / && rm -rf "$directory"
"#;

/// The second line keeps the browser from requests of its own.
const OPTIONS: &[&str] = &[
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1200,800",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

const TIMEOUT: Duration = Duration::from_secs(60);

/// One page of a browser.
pub struct Browser {
    guardian: Child,
    /// Closed before the wait for the guardian.
    requests: Option<ChildStdin>,
    messages: Receiver<Value>,
    last_id: u64,
    session: Value,
    /// The messages that were not replies.
    events: Vec<Value>,
}

impl Browser {
    pub fn start() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "guardian", &super::setting("REDISSON_LOCK_BROWSER")]).args(OPTIONS);
        // The browser refuses its sandbox to root.
        command.args(geteuid().is_root().then_some("--no-sandbox"));
        let streams = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guardian = streams.spawn().expect("sh cannot be run");
        let replies = BufReader::new(guardian.stdout.take().expect("it is piped"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in replies.split(0).map_while(Result::ok) {
                let _ = sender.send(serde_json::from_slice(&message).expect("the browser sends JSON"));
            }
        });
        let requests = guardian.stdin.take();
        let mut browser =
            Self { guardian, requests, messages, last_id: 0, session: Value::Null, events: Vec::new() };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].clone();
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&mut self, page: &Path) {
        self.open_at(page, "");
    }

    /// Opens a file whose script reads `fragment`.
    pub fn open_at(&mut self, page: &Path, fragment: &str) {
        self.call("Page.navigate", json!({"url": format!("file://{}{fragment}", page.display())}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.message();
            self.events.push(event);
        }
    }

    /// The value of an expression of JavaScript.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let reply = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(reply["exceptionDetails"].is_null(), "{expression}: {reply}");
        reply["result"]["value"].clone()
    }

    /// Waits until the page shows a text that has `part`, and returns that text.
    pub fn text_with(&mut self, part: &str) -> String {
        let shown = format!(
            "new Promise(shown => {{
                const look = () => {{ const text = document.body.innerText; if (text.includes({part:?})) shown(text); }};
                new MutationObserver(look).observe(document, {{subtree: true, childList: true, characterData: true}});
                look();
            }})"
        );
        let text = self.evaluate(&shown);
        text.as_str().expect("a text").to_owned()
    }

    /// Moves the mouse to the middle of the first element that matches a selector.
    pub fn point_at(&mut self, selector: &str) {
        let place = format!(
            "(() => {{ const box = document.querySelector({selector:?}).getBoundingClientRect();
                return [box.left + box.width / 2, box.top + box.height / 2]; }})()"
        );
        let place = self.evaluate(&place);
        self.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": place[0], "y": place[1]}));
    }

    /// Presses a key that types a character.
    pub fn press(&mut self, key: &str) {
        self.call("Input.dispatchKeyEvent", json!({"type": "keyDown", "key": key, "text": key}));
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key}));
    }

    /// The addresses that the page requested.
    pub fn requested(&self) -> Vec<&str> {
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.map(|event| event["params"]["request"]["url"].as_str().unwrap_or_default()).collect()
    }

    /// The errors and warnings of the page, but not those of the browser's own way to draw.
    pub fn problems(&self) -> Vec<&Value> {
        let is_problem = |event: &Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                ["warning", "error", "assert"].iter().any(|level| event["params"]["type"] == *level)
            }
            Some("Log.entryAdded") => event["params"]["entry"]["source"] != "rendering",
            _ => false,
        };
        self.events.iter().filter(|event| is_problem(event)).collect()
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({"id": self.last_id, "method": method, "params": parameters});
        if !self.session.is_null() {
            request["sessionId"] = self.session.clone();
        }
        let requests = self.requests.as_mut().expect("taken only by drop");
        write!(requests, "{request}\0").expect("the browser runs");
        loop {
            let mut message = self.message();
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    fn message(&self) -> Value {
        self.messages.recv_timeout(TIMEOUT).expect("the browser does not answer")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.requests.take());
        self.guardian.wait().expect("the guardian is our child");
    }
}
