//! systemd units for instances and services: a template unit for each kind.

use std::path::Path;

/// systemd gives up on a unit that has started this often within [`GIVE_UP_WITHIN`] seconds, since
/// an error in the unit's settings does not go away by itself.
const GIVE_UP_AFTER: u32 = 3;
const GIVE_UP_WITHIN: u32 = 600;

/// How long a unit may take to stop, in seconds: Cassandra first writes its memory to disk.
const STOP_PATIENCE: u32 = 120;

/// Number of open files and of memory maps that a unit may have: a database needs many.
const OPEN_FILES: u32 = 100_000;

/// Returns the name of a kind's unit file.
#[must_use]
pub fn name(kind: &str) -> String {
    format!("sprat-{kind}@.service")
}

/// Returns a drop-in for the unit of one instance whose home is in a filesystem of its own, and not
/// in the folder `homes` of [`text`]. The drop-in belongs into the folder `NAME.d` next to the unit
/// files, where NAME is the unit's name.
#[must_use]
pub fn own_home(home: &Path) -> String {
    let home = home.display();
    format!(
        "# Made from the rack's plan.\n[Unit]\nRequiresMountsFor={home}\n\n[Service]\nExecStart=\n\
         ExecStart={home}/instance run\n"
    )
}

/// Returns the unit file of a kind. Each instance has a folder of its name below `homes`, in which
/// the unit runs `instance run`.
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
