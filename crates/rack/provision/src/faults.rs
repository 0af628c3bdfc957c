//! Why a host is not as it should be, in a sentence: out of what Ansible says.

use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Most faults that are told: of a rack where nothing goes, the first say why.
pub const MAX_FAULTS: usize = 64;

/// Longest reason, characters.
const MAX_WHY: usize = 600;

/// What went wrong on a host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// The host.
    pub host: String,
    /// What was being done.
    pub task: String,
    /// Why it could not be.
    pub why: String,
    /// What would help, where it is known.
    pub mend: Option<&'static str>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.host, self.task, self.why)?;
        match self.mend {
            Some(mend) => write!(f, ": {mend}"),
            None => Ok(()),
        }
    }
}

/// What words of a reason mean.
const KNOWN: [(&str, &str, &str); 10] = [
    (
        "host key verification failed",
        "its key is not the one that is known",
        "if the host was made anew, take its key out of known_hosts (ssh-keygen -R)",
    ),
    (
        "host identification has changed",
        "its key is not the one that is known",
        "if the host was made anew, take its key out of known_hosts (ssh-keygen -R)",
    ),
    (
        "permission denied (publickey",
        "it does not take our key",
        "add your public key to its authorized_keys, or see provision.user",
    ),
    ("connection refused", "nothing listens for ssh", "start its ssh server"),
    ("no route to host", "it cannot be reached", "see that it runs, and its cable and address"),
    ("connection timed out", "it cannot be reached", "see that it runs, and its cable and address"),
    ("operation timed out", "it cannot be reached", "see that it runs, and its cable and address"),
    (
        "could not resolve hostname",
        "its address means nothing here",
        "see [addresses] of the description",
    ),
    (
        "no usable temporary directory",
        "its disk is full, or nobody may write to its /tmp",
        "make room there",
    ),
    ("no space left on device", "its disk is full", "make room below provision.base"),
];

/// What is said of an interpreter that is not there.
const NO_PYTHON: [&str; 2] = ["python3: not found", "python3: no such file"];

/// Reads faults out of lines as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    task: String,
    found: Vec<Fault>,
}

impl Reader {
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(task) = line.strip_prefix("TASK [") {
            task.trim_end_matches(['*', ' ']).trim_end_matches(']').clone_into(&mut self.task);
        } else if let Some(fault) = self.fault(line).filter(|fault| self.is_news(fault)) {
            self.found.push(fault);
        }
    }

    /// Items of a loop may fail for one reason, which is told once.
    fn is_news(&self, fault: &Fault) -> bool {
        self.found.len() < MAX_FAULTS && !self.found.contains(fault)
    }

    pub(crate) fn found(self) -> Vec<Fault> {
        self.found
    }

    /// `fatal: [c0-n1]: UNREACHABLE! => {...}`, `failed: [c0-n1] (item=x) => {...}`. What is
    /// ignored was meant to be able to fail.
    fn fault(&self, line: &str) -> Option<Fault> {
        let rest = line.strip_prefix("fatal: [").or_else(|| line.strip_prefix("failed: ["))?;
        let (host, rest) = rest.split_once(']')?;
        let (head, told) = rest.split_once("=> ").unwrap_or((rest, ""));
        let told: Value =
            serde_json::from_str(told).unwrap_or_else(|_| Value::String(told.to_owned()));
        let word = |key: &str| told[key].as_str().map(str::trim).filter(|text| !text.is_empty());
        let said = word("stderr")
            .or_else(|| word("module_stderr"))
            .or_else(|| word("msg"))
            .or(told.as_str());
        // What became of a loop's items was told item by item.
        if told["msg"].as_str() == Some("One or more items failed") || told["results"].is_array() {
            return None;
        }
        let said = said.unwrap_or("it did not say why");
        let small = [word("msg"), word("module_stdout"), Some(said)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n");
        let small = small.to_lowercase();
        let known = KNOWN.iter().find(|(words, _, _)| small.contains(words));
        let python = NO_PYTHON.iter().any(|words| small.contains(words));
        let (why, mend) = match known {
            _ if python => (
                "it has no Python 3, which Ansible works by".to_owned(),
                Some("install python3 there"),
            ),
            Some((_, why, mend)) => ((*why).to_owned(), Some(*mend)),
            None => (plain(said), None),
        };
        // Of a loop's item only the answer says so.
        let unreachable = head.contains("UNREACHABLE") || told["unreachable"] == true;
        let task = match (unreachable, self.task.as_str()) {
            (true, _) => "ssh".to_owned(),
            (false, "") => "before the first task".to_owned(),
            (false, task) => task.to_owned(),
        };
        Some(Fault { host: host.split(" -> ").next().unwrap_or(host).to_owned(), task, why, mend })
    }
}

/// On one line, and not too long.
fn plain(text: &str) -> String {
    let mut lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if text.trim_start().starts_with("Traceback ") {
        lines.drain(..lines.len() - 1); // where it was in Python helps nobody
    }
    let all = lines.join("; ");
    match all.char_indices().nth(MAX_WHY) {
        Some((at, _)) => format!("{}...", &all[..at]),
        None => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Vec<String> {
        let mut reader = Reader::default();
        lines.iter().for_each(|line| reader.line(line));
        reader.found().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn faults_are_sentences_with_host_task_and_mend() {
        let task = "TASK [cassandra : Start instances] ******";
        assert_eq!(
            of(&[
                task,
                r#"failed: [c0-n1] (item=c0-n1-i1) => {"cmd": ["x"], "msg": "non-zero return code", "rc": 1, "stderr": "port 9042 is taken\nby x", "stdout": ""}"#,
                r#"fatal: [c0-n1]: FAILED! => {"msg": "One or more items failed"}"#
            ]),
            ["c0-n1: cassandra : Start instances: port 9042 is taken; by x"]
        );
        let unreachable = |why: &str| {
            format!(
                r#"fatal: [c0-n2]: UNREACHABLE! => {{"changed": false, "msg": "Failed to connect to the host via ssh: {why}", "unreachable": true}}"#
            )
        };
        assert_eq!(
            of(&[&unreachable("ssh: connect to host 10.0.0.4 port 22: No route to host")]),
            ["c0-n2: ssh: it cannot be reached: see that it runs, and its cable and address"]
        );
        assert_eq!(
            of(&[&unreachable("root@10.0.0.4: Permission denied (publickey).")]),
            [
                "c0-n2: ssh: it does not take our key: add your public key to its authorized_keys, or see provision.user"
            ]
        );
        let item = r#"failed: [c0-n2] (item=1) => {"ansible_loop_var": "item", "msg": "Failed to connect to the host via ssh: Host key verification failed.", "unreachable": true}"#;
        let key = "c0-n2: ssh: its key is not the one that is known: if the host was made anew, take its key out of known_hosts (ssh-keygen -R)";
        assert_eq!(of(&[task, item, &item.replace("item=1", "item=2")]), [key], "told once");
        let python = r#"fatal: [a]: FAILED! => {"changed": false, "module_stderr": "", "module_stdout": "/bin/sh: 1: /usr/bin/python3: not found\r\n", "msg": "The module failed to execute correctly", "rc": 127}"#;
        assert_eq!(
            of(&[task, python]),
            [
                "a: cassandra : Start instances: it has no Python 3, which Ansible works by: install python3 there"
            ]
        );
    }

    #[test]
    fn of_a_traceback_the_end_is_told() {
        let told = |last: &str| {
            format!(
                r#"fatal: [a]: FAILED! => {{"msg": "MODULE FAILURE", "module_stderr": "Traceback (most recent call last):\n  x\n{last}\n"}}"#
            )
        };
        assert_eq!(of(&[&told("KeyError: 'b'")]), ["a: before the first task: KeyError: 'b'"]);
        let full =
            told("FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp']");
        let says = "a: before the first task: its disk is full, or nobody may write to its /tmp: make room there";
        assert_eq!(of(&[&full]), [says]);
    }

    #[test]
    fn what_is_no_fault_is_none() {
        assert!(
            of(&[
                "",
                "ok: [a]",
                "fatal",
                "fatal: [a",
                "TASK [x] ***",
                "changed: [a] => {\"msg\": \"x\"}"
            ])
            .is_empty()
        );
        assert_eq!(
            of(&["fatal: [a]: FAILED! => not json"]),
            ["a: before the first task: not json"]
        );
        let many: Vec<String> =
            (0..=MAX_FAULTS).map(|host| format!("fatal: [a{host}]: FAILED! => {{}}")).collect();
        assert_eq!(of(&many.iter().map(String::as_str).collect::<Vec<_>>()).len(), MAX_FAULTS);
    }
}
