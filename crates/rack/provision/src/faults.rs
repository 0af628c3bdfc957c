//! Extracts a sentence about the failure of each host from Ansible's output.

use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Limit on the faults that are reported. If a complete rack fails, the first faults show the
/// reason.
pub const MAX_FAULTS: usize = 64;

/// Limit on the text of a reason, in characters. A longer text is cut.
const MAX_WHY: usize = 600;

/// Why a task failed on a host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// The host on which the task failed.
    pub host: String,
    /// Name of the failed task.
    pub task: String,
    /// The reason.
    pub why: String,
    /// The remedy, if one is known.
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

/// Known reasons: a part of the message, what it means, and what to do.
const KNOWN: [(&str, &str, &str); 10] = [
    (
        "host key verification failed",
        "its host key is not the known one",
        "if the host was reinstalled, remove its old key from known_hosts (ssh-keygen -R)",
    ),
    (
        "host identification has changed",
        "its host key is not the known one",
        "if the host was reinstalled, remove its old key from known_hosts (ssh-keygen -R)",
    ),
    (
        "permission denied (publickey",
        "it rejected our ssh key",
        "add your public key to its authorized_keys, or see provision.user",
    ),
    ("connection refused", "no ssh server listens there", "start its ssh server"),
    ("no route to host", "it cannot be reached", "check that it runs, and its cable and address"),
    (
        "connection timed out",
        "it cannot be reached",
        "check that it runs, and its cable and address",
    ),
    (
        "operation timed out",
        "it cannot be reached",
        "check that it runs, and its cable and address",
    ),
    (
        "could not resolve hostname",
        "its name cannot be resolved",
        "see [addresses] of the description",
    ),
    (
        "no usable temporary directory",
        "its disk is full, or its /tmp is not writable",
        "make room there",
    ),
    ("no space left on device", "its disk is full", "make room below provision.base"),
];

/// Messages of a shell that cannot find Python.
const NO_PYTHON: [&str; 2] = ["python3: not found", "python3: no such file"];

/// Collects faults from the lines of Ansible's output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    task: String,
    found: Vec<Fault>,
}

impl Reader {
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(task) = line.strip_prefix("TASK [") {
            task.trim_end_matches(['*', ' ']).trim_end_matches(']').clone_into(&mut self.task);
        } else if let Some(fault) = self.fault(line).filter(|fault| self.is_new(fault)) {
            self.found.push(fault);
        }
    }

    /// Returns whether to report this fault. Items of a loop may fail for the same reason, which is
    /// reported only once.
    fn is_new(&self, fault: &Fault) -> bool {
        self.found.len() < MAX_FAULTS && !self.found.contains(fault)
    }

    pub(crate) fn found(self) -> Vec<Fault> {
        self.found
    }

    /// Parses a failure: `fatal: [c0-n1]: UNREACHABLE! => {...}` or `failed: [c0-n1] (item=x) =>
    /// {...}`. Returns `None` for other lines, such as failures that the playbook ignores.
    fn fault(&self, line: &str) -> Option<Fault> {
        let rest = line.strip_prefix("fatal: [").or_else(|| line.strip_prefix("failed: ["))?;
        let (host, rest) = rest.split_once(']')?;
        let (head, answer) = rest.split_once("=> ").unwrap_or((rest, ""));
        let answer: Value =
            serde_json::from_str(answer).unwrap_or_else(|_| Value::String(answer.to_owned()));
        let word = |key: &str| answer[key].as_str().map(str::trim).filter(|text| !text.is_empty());
        let message = word("stderr")
            .or_else(|| word("module_stderr"))
            .or_else(|| word("msg"))
            .or(answer.as_str());
        // The items of this loop have been reported one by one.
        if answer["msg"].as_str() == Some("One or more items failed")
            || answer["results"].is_array()
        {
            return None;
        }
        let message = message.unwrap_or("it gave no reason");
        let small = [word("msg"), word("module_stdout"), Some(message)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n");
        let small = small.to_lowercase();
        let known = KNOWN.iter().find(|(words, _, _)| small.contains(words));
        let python = NO_PYTHON.iter().any(|words| small.contains(words));
        let (why, mend) = match known {
            _ if python => (
                "it has no Python 3, which Ansible needs".to_owned(),
                Some("install python3 there"),
            ),
            Some((_, why, mend)) => ((*why).to_owned(), Some(*mend)),
            None => (one_line(message), None),
        };
        // If an item of a loop is unreachable, only the JSON says so.
        let unreachable = head.contains("UNREACHABLE") || answer["unreachable"] == true;
        let task = match (unreachable, self.task.as_str()) {
            (true, _) => "ssh".to_owned(),
            (false, "") => "before the first task".to_owned(),
            (false, task) => task.to_owned(),
        };
        Some(Fault { host: host.split(" -> ").next().unwrap_or(host).to_owned(), task, why, mend })
    }
}

/// Joins the text's lines, and cuts them to [`MAX_WHY`] characters. Of a traceback, only the last
/// line is kept.
fn one_line(text: &str) -> String {
    let mut lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if text.trim_start().starts_with("Traceback ") {
        lines.drain(..lines.len() - 1); // the traceback itself does not help the reader
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
    fn faults_have_host_task_reason_and_remedy() {
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
            ["c0-n2: ssh: it cannot be reached: check that it runs, and its cable and address"]
        );
        assert_eq!(
            of(&[&unreachable("root@10.0.0.4: Permission denied (publickey).")]),
            ["c0-n2: ssh: it rejected our ssh key: add your public key to its \
              authorized_keys, or see provision.user"]
        );
        let item = r#"failed: [c0-n2] (item=1) => {"ansible_loop_var": "item", "msg": "Failed to connect to the host via ssh: Host key verification failed.", "unreachable": true}"#;
        let key = "c0-n2: ssh: its host key is not the known one: if the host was reinstalled, \
                   remove its old key from known_hosts (ssh-keygen -R)";
        assert_eq!(of(&[task, item, &item.replace("item=1", "item=2")]), [key], "reported once");
        let python = r#"fatal: [a]: FAILED! => {"changed": false, "module_stderr": "", "module_stdout": "/bin/sh: 1: /usr/bin/python3: not found\r\n", "msg": "The module failed to execute correctly", "rc": 127}"#;
        assert_eq!(
            of(&[task, python]),
            ["a: cassandra : Start instances: it has no Python 3, which Ansible needs: install \
              python3 there"]
        );
    }

    #[test]
    fn tracebacks_are_cut_to_their_last_line() {
        let traceback = |last: &str| {
            format!(
                r#"fatal: [a]: FAILED! => {{"msg": "MODULE FAILURE", "module_stderr": "Traceback (most recent call last):\n  x\n{last}\n"}}"#
            )
        };
        assert_eq!(of(&[&traceback("KeyError: 'b'")]), ["a: before the first task: KeyError: 'b'"]);
        let full = traceback(
            "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp']",
        );
        let says = "a: before the first task: its disk is full, or its /tmp is not writable: make \
                    room there";
        assert_eq!(of(&[&full]), [says]);
    }

    #[test]
    fn other_lines_are_no_faults() {
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
