//! Guests: hosts on this machine with kernels, disks and clocks of their own.

#[allow(dead_code, reason = "tests of roles use all of it")]
mod guest;

use guest::Rack;

#[test]
#[ignore = "starts two guests: make test-rack"]
fn guests_have_kernels_disks_and_clocks_of_their_own() {
    let Some(rack) = Rack::up("") else { return };
    assert_eq!(rack.ask(1, "hostname"), "c0-n2");
    assert_eq!(rack.ask(0, "cat /proc/1/comm"), "systemd");
    let disks = rack.ask(1, "lsblk --noheadings --raw --nodeps --bytes --output SERIAL,SIZE | grep -- -d");
    assert_eq!(disks, "c0-n2-d1 268435456\nc0-n2-d2 268435456\nc0-n2-d3 67108864");
    assert!(rack.ask(0, "ping -c 1 -W 10 10.0.0.3").contains("1 received"), "they are neighbours");

    // Each has its own time.
    rack.ask(1, "date --set '2001-01-01 12:00:00'");
    assert_eq!(rack.ask(1, "date +%Y"), "2001");
    assert_ne!(rack.ask(0, "date +%Y"), "2001");

    // What was written stays when they are taken down and come back.
    rack.ask(0, "echo kept >/root/note && echo kept | dd of=/dev/disk/by-id/ubd-c0-n1-d2 conv=notrunc status=none");
    rack.local.down(rack.name()).unwrap_or_else(|error| panic!("{error}"));
    assert!(!rack.local.stands(rack.name()));
    rack.local.up(&rack.plan, &rack.hosts).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rack.ask(0, "cat /root/note; head -c 4 /dev/disk/by-id/ubd-c0-n1-d2"), "kept\nkept");
}
