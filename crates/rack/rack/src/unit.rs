//! Units by which systemd keeps what runs on a rack's hosts: a template for each kind, of which
//! everybody of that kind is an instance.

use std::path::Path;

/// Starts in so many seconds, after which systemd gives up on whoever fails: an error in its
/// settings does not go away by itself.
const GIVE_UP_AFTER: u32 = 3;
const GIVE_UP_WITHIN: u32 = 600;

/// How long one that is asked to stop may take, seconds: it writes down what it has in memory.
const STOP_PATIENCE: u32 = 120;

/// Files and maps that it may have open: a database has many.
const OPEN_FILES: u32 = 100_000;

/// The name of a kind's unit file.
#[must_use]
pub fn name(kind: &str) -> String {
    format!("sprat-{kind}@.service")
}

/// What the unit of one instance says in place of its kind's where its home is not below `homes`,
/// but in a filesystem of its own. It lies in the folder `NAME.d` beside the unit files, where NAME
/// is that of the unit.
#[must_use]
pub fn own_home(home: &Path) -> String {
    let home = home.display();
    format!(
        "# Made from the rack's plan.\n[Unit]\nRequiresMountsFor={home}\n\n[Service]\nExecStart=\nExecStart={home}/instance run\n"
    )
}

/// The unit file of a kind, whose homes are below `homes`, each in a folder of its name. What is
/// started has `instance run` made of itself.
#[must_use]
pub fn text(kind: &str, homes: &Path) -> String {
    let homes = homes.display();
    format!(
        "# Made from the rack's plan.\n\
         [Unit]\n\
         Description={kind} %i of a rack\n\
         After=network-online.target time-sync.target\n\
         Wants=network-online.target\n\
         RequiresMountsFor={homes}\n\
         StartLimitIntervalSec={GIVE_UP_WITHIN}\n\
         StartLimitBurst={GIVE_UP_AFTER}\n\
         \n\
         [Service]\n\
         Type=exec\n\
         ExecStart={homes}/%i/instance run\n\
         Restart=on-failure\n\
         RestartSec=5\n\
         # What Java ends with when it is asked to.\n\
         SuccessExitStatus=143\n\
         TimeoutStopSec={STOP_PATIENCE}\n\
         KillMode=mixed\n\
         LimitNOFILE={OPEN_FILES}\n\
         LimitMEMLOCK=infinity\n\
         LimitNPROC=32768\n\
         TasksMax=infinity\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}
