#!/usr/bin/python3
"""Makes a filesystem on one disk, or on several disks joined as RAID-0, and mounts it at `base`.

The module keeps an array or a filesystem that it made before, and continues a run that stopped half
way. It refuses a disk that holds anything else, unless `erase` has the disk's identity. It refuses
a disk in use in any case. With `look` the module only checks the disks, and changes nothing.
"""

import json
import os
import re
import time

from ansible.module_utils.basic import AnsibleModule

CHUNK_KB = 64
BLOCK_KB = 4
APPEAR = 10  # seconds to wait until a device has its name in /dev


class Refused(Exception):
    pass


class Storage:
    def __init__(self, module):
        self.module = module
        self.params = module.params
        self.base = module.params["base"]
        self.kind = module.params["filesystem"]
        self.name = module.params["name"]
        self.array = "/dev/md/" + self.name
        self.mark = "# %s: a rack's disks" % self.name
        self.rules = "/etc/udev/rules.d/90-%s-read-ahead.rules" % self.name
        self.done = []

    # The present state.

    def run(self, *command, fails=False):
        code, out, err = self.module.run_command(list(command))
        if code and not fails:
            raise Refused("%s failed (%d): %s" % (" ".join(command), code, (err or out).strip()))
        return out.strip() if not code else ""

    def blkid(self, device):
        """Returns blkid's tags of a device, read from the device and not from blkid's cache."""
        out = self.run("blkid", "--probe", "--output", "export", device, fails=True)
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def disk(self, name):
        """Finds a disk by its name; raises Refused if there is none or it is not a whole disk."""
        tried = [name] if name.startswith("/dev/") else ["/dev/" + name, "/dev/disk/by-id/" + name]
        path = next((os.path.realpath(one) for one in tried if os.path.exists(one)), None)
        if path is None:
            raise Refused("there is no disk %s: `lsblk -o NAME,SERIAL,SIZE` lists the disks" % name)
        columns = "NAME,TYPE,SIZE,SERIAL,WWN,MOUNTPOINTS"
        told = json.loads(self.run("lsblk", "--json", "--bytes", "--paths", "--output", columns, path))["blockdevices"][0]
        if told["type"] != "disk":
            raise Refused("%s is a %s: name a whole disk" % (name, told["type"]))
        short = os.path.basename(path)
        # A disk may have neither a serial number nor a WWN: its name and size identify it then.
        identity = told["serial"] or told["wwn"] or "%s-%s" % (short, told["size"])
        return {"name": name, "path": path, "short": short, "identity": identity.strip(), "tree": told}

    def in_use(self, disk):
        """Lists the uses of a disk, such as mounts. With any use the disk is refused, even if
        `erase` has its identity."""
        with open("/proc/swaps") as swaps:
            swapped = [line.split()[0] for line in swaps.readlines()[1:]]
        found = []
        queue = [disk["tree"]]
        while queue:
            part = queue.pop(0)
            queue += part.get("children", [])
            found += ["mounted at " + at for at in part.get("mountpoints") or [] if at and at != "[SWAP]"]
            if part["name"] in swapped:
                found.append("used for swap")
            if part is not disk["tree"] and part["type"] != "part":
                found.append("part of %s (%s)" % (part["name"], part["type"]))
        return sorted(set(found))

    def holds(self, disk):
        """Lists the signatures and partitions on a disk. Raises Refused if the disk cannot be read:
        a disk that cannot be read does not count as empty."""
        out = self.run("wipefs", "--no-act", "--json", disk["path"])
        signatures = json.loads(out)["signatures"] if out else []
        found = []
        for one in signatures:
            label = " \"%s\"" % one["label"] if one.get("label") else ""
            found.append(one["type"] + label)
        found += [os.path.basename(part["name"]) for part in disk["tree"].get("children", []) if part["type"] == "part"]
        return sorted(set(found))

    def members(self, disks):
        """Returns the UUID of our array if it consists of exactly these disks; None otherwise."""
        uuids = set()
        for disk in disks:
            told = self.run("mdadm", "--examine", "--export", disk["path"], fails=True)
            told = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
            chunk = re.search(r"Chunk Size : (\S+)", self.run("mdadm", "--examine", disk["path"], fails=True))
            ours = told.get("MD_NAME", "").split(":")[-1] == self.name and told.get("MD_LEVEL") == "raid0"
            ours = ours and told.get("MD_DEVICES") == str(len(disks)) and chunk and chunk.group(1) == "%dK" % CHUNK_KB
            uuids.add(told.get("MD_UUID") if ours else None)
        return uuids.pop() if len(uuids) == 1 else None

    def running(self, disks):
        """Returns the device of the running array that has all of these disks, or None."""
        holders = [os.listdir("/sys/class/block/%s/holders" % disk["short"]) for disk in disks]
        names = set(name for one in holders for name in one if name.startswith("md"))
        return "/dev/" + names.pop() if len(names) == 1 and all(len(one) == 1 for one in holders) else None

    def mounted(self):
        with open("/proc/self/mounts") as mounts:
            at = [line.split()[0] for line in mounts if line.split()[1] == self.base]
        return os.path.realpath(at[-1]) if at else None

    # The changes.

    def look(self):
        """Returns the present state, or None if it cannot be determined, and a list of problems."""
        wrong, disks = [], []
        for name in self.params["disks"]:
            try:
                disks.append(self.disk(name))
            except Refused as refused:
                wrong.append(str(refused))
        if len(set(disk["path"] for disk in disks)) != len(disks):
            wrong.append("storage.disks names a disk twice")
        if wrong:
            return None, wrong
        tools = ["wipefs", "blkid", "mkfs." + self.kind] + (["mdadm"] if len(disks) > 1 else [])
        lacking = [tool for tool in tools if not self.module.get_bin_path(tool)]
        if lacking:
            return None, ["there is no %s: install mdadm, e2fsprogs, xfsprogs, util-linux" % ", ".join(lacking)]
        array = self.members(disks) if len(disks) > 1 else None
        device = self.running(disks) if array else disks[0]["path"] if len(disks) == 1 else None
        on = self.blkid(device) if device else {}
        ours = on.get("LABEL") == self.name and on.get("USAGE") == "filesystem"
        erased = []
        if ours and on.get("TYPE") != self.kind:
            wrong.append(
                "%s has Sprat's filesystem as %s, and storage.filesystem is %s: Sprat does not "
                "convert filesystems; set storage.filesystem to %s, or erase the filesystem by hand"
                % (device, on.get("TYPE"), self.kind, on.get("TYPE"))
            )
        elif array and on and not ours and device:
            wrong.append(
                "%s has a %s that Sprat did not make: erase it by hand"
                % (device, on.get("TYPE", on.get("PTTYPE")))
            )
        elif not array and not ours:
            for disk in disks:
                who = "%s (%s, serial %s)" % (disk["name"], disk["path"], disk["identity"])
                try:
                    holds, used = self.holds(disk), self.in_use(disk)
                except Refused as refused:
                    wrong.append("%s cannot be read, so no disk is changed: %s" % (who, refused))
                    continue
                if used:
                    wrong.append(
                        "%s is in use (%s): end this use, or remove the disk from storage.disks"
                        % (who, ", ".join(used))
                    )
                elif holds and disk["identity"] not in self.params["erase"]:
                    wrong.append(
                        "%s holds %s, so no disk is changed; to let Sprat erase the disk, add "
                        "to the description: [storage] erase = [\"%s\"]"
                        % (who, ", ".join(holds), disk["identity"])
                    )
                elif holds:
                    erased.append((disk, holds))
        at = self.mounted()
        if at and at != device:
            wrong.append("%s is mounted at %s: unmount it first" % (at, self.base))
        if not at and os.path.isdir(self.base) and os.listdir(self.base):
            wrong.append("%s has files, which a mount would hide: move them away first" % self.base)
        for line in self.others("/etc/fstab"):
            words = line.split()
            if len(words) > 1 and words[1] == self.base and not line.startswith("#"):
                wrong.append("/etc/fstab has another mount at %s: remove that line" % self.base)
        return {"disks": disks, "array": array, "device": device, "ours": ours, "on": on, "erased": erased, "at": at}, wrong

    def lines(self, path):
        try:
            with open(path) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def step(self, what, *commands):
        """Records a change, and makes it unless in check mode."""
        self.done.append(what)
        if not self.module.check_mode:
            for command in commands:
                command() if callable(command) else self.run(*command)

    def others(self, path):
        """Returns the lines of a file without our mark, and without our line, which follows it."""
        after, ours = [], False
        for line in self.lines(path):
            if not ours and line != self.mark:
                after.append(line)
            ours = line == self.mark
        return after

    def line(self, path, text):
        """Puts our mark and `text` into a file, in place of our previous line. Returns whether the
        file changes."""
        lines = self.lines(path)
        if lines.count(self.mark) == 1 and lines[lines.index(self.mark) + 1:][:1] == [text]:
            return False
        after = "\n".join(self.others(path) + [self.mark, text]) + "\n"
        self.step("%s: %s" % (path, text), lambda: self.write(path, after))
        return True

    def write(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        new = path + ".sprat-new"
        with open(new, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(new, 0o644)
        os.rename(new, path)

    def settle(self, path):
        until = time.monotonic() + APPEAR
        while not os.path.exists(path) and time.monotonic() < until:
            time.sleep(0.1)

    def make(self, found):
        disks, count = found["disks"], len(found["disks"])
        paths = [disk["path"] for disk in disks]
        for disk, holds in found["erased"]:
            parts = [part["name"] for part in disk["tree"].get("children", [])]
            what = "%s (serial %s): %s erased" % (disk["name"], disk["identity"], ", ".join(holds))
            self.step(what, *[["wipefs", "--all", part] for part in parts + [disk["path"]]])
            if parts and not self.module.check_mode:
                self.run("blockdev", "--rereadpt", disk["path"], fails=True)
        device, array = found["device"], found["array"]
        if count > 1 and not array:
            self.step(
                "%s: RAID-0 of %s, chunks of %d KB" % (self.array, ", ".join(paths), CHUNK_KB),
                ["mdadm", "--create", self.array, "--run", "--metadata=1.2", "--level=0", "--chunk=%d" % CHUNK_KB]
                + ["--name=" + self.name, "--raid-devices=%d" % count] + paths,
            )
        elif count > 1 and not device:
            self.step("%s: assembled from %s" % (self.array, ", ".join(paths)), ["mdadm", "--assemble", self.array] + paths)
        if count > 1 and not self.module.check_mode:
            self.settle(self.array)
            array = array or self.members(disks)
            device = self.running(disks)
            if not array or not device:
                raise Refused("%s was made but does not run: see `cat /proc/mdstat`" % self.array)
        if array:
            conf = "/etc/mdadm/mdadm.conf" if os.path.isdir("/etc/mdadm") else "/etc/mdadm.conf"
            if self.line(conf, "ARRAY %s metadata=1.2 UUID=%s" % (self.array, array)):
                if self.module.get_bin_path("update-initramfs"):
                    self.step("initramfs: updated for the array", ["update-initramfs", "-u"])
        on = self.blkid(device) if device else {}
        if not found["ours"] and not (on.get("LABEL") == self.name and on.get("USAGE") == "filesystem"):
            self.step("%s: %s%s" % (device or self.array, self.kind, self.stripes(count)), lambda: self.format(device, count))
        on = self.blkid(device) if device else {}
        uuid = on.get("UUID", "(of the filesystem)")
        options = "noatime,nofail,x-systemd.device-timeout=30s"
        if self.line("/etc/fstab", "UUID=%s %s %s %s 0 2" % (uuid, self.base, self.kind, options)):
            if os.path.isdir("/run/systemd/system"):
                self.step("systemd: reads /etc/fstab", ["systemctl", "daemon-reload"])
        if not found["at"]:
            if not os.path.isdir(self.base):
                self.step(self.base + ": made", lambda: os.makedirs(self.base))
            self.step("%s: mounted" % self.base, ["mount", self.base])
        self.read_ahead(disks, device, uuid, array)

    def stripes(self, count):
        if count == 1:
            return ""
        if self.kind == "xfs":
            return " -d su=%dk,sw=%d" % (CHUNK_KB, count)
        return " -E stride=%d,stripe-width=%d" % (CHUNK_KB // BLOCK_KB, CHUNK_KB // BLOCK_KB * count)

    def format(self, device, count):
        quiet = ["-q", "-L", self.name] if self.kind == "xfs" else ["-q", "-F", "-b", str(BLOCK_KB << 10), "-L", self.name]
        self.run("mkfs." + self.kind, *quiet, *self.stripes(count).split(), device)

    def read_ahead(self, disks, device, uuid, array):
        wanted = self.params["read_ahead_kb"]
        # blkid writes an array's UUID as 8-4-4-4-12, mdadm as 8:8:8:8.
        plain = (array or "").replace(":", "")
        dashed = "-".join([plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]]) if plain else None
        rule = 'ACTION=="add|change", SUBSYSTEM=="block", ENV{ID_FS_UUID}=="%s", ATTR{queue/read_ahead_kb}="%d"'
        text = self.mark + "\n" + "".join(rule % (one, wanted) + "\n" for one in [uuid, dashed] if one)
        if "\n".join(self.lines(self.rules)) + "\n" != text:
            self.step("%s: %d KB" % (self.rules, wanted), lambda: self.write(self.rules, text), ["udevadm", "control", "--reload"])
        for path in [disk["path"] for disk in disks] + ([device] if device else []):
            setting = "/sys/class/block/%s/queue/read_ahead_kb" % os.path.basename(path)
            if self.lines(setting) != [str(wanted)]:
                self.step(
                    "%s: read-ahead of %d KB" % (path, wanted),
                    lambda to=setting: self.set(to, wanted),
                )

    def set(self, path, value):
        with open(path, "w") as file:
            file.write(str(value))


def main():
    module = AnsibleModule(
        argument_spec={
            # Name of the array, and label of the filesystem. The module knows its own by this name.
            "name": {"type": "str", "default": "sprat"},
            "disks": {"type": "list", "elements": "str", "required": True},
            "erase": {"type": "list", "elements": "str", "default": []},
            "filesystem": {"choices": ["ext4", "xfs"], "default": "ext4"},
            "base": {"type": "path", "required": True},
            "read_ahead_kb": {"type": "int", "required": True},
            "look": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    storage = Storage(module)
    try:
        found, wrong = storage.look()
        if wrong:
            module.fail_json(msg="; ".join(wrong))
        if not module.params["look"]:
            storage.make(found)
    except Refused as refused:
        module.fail_json(msg=str(refused), done=storage.done)
    after = "".join(line + "\n" for line in storage.done)
    module.exit_json(changed=bool(storage.done), done=storage.done, diff={"before": "", "after": after})


if __name__ == "__main__":
    main()
