#!/usr/bin/python3
"""Adds the addresses of a server's instances to the interface that has the server's own address.

The module adds an address at once, and to the configuration that restores it when the server
starts. It never changes the server's own address, over which Ansible is connected. It removes an
address only if an earlier run added the address and the plan no longer has it.
"""

import json
import os
import re

from ansible.module_utils.basic import AnsibleModule

# Records the addresses that earlier runs added to a profile of NetworkManager.
PUT = "/var/lib/sprat/addresses"
MARK = "# sprat: addresses of a rack's instances"


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def profile(module, interface):
    """Returns NetworkManager's profile of an interface; None if there is no such profile."""
    if not module.get_bin_path("nmcli"):
        return None
    code, out, _ = module.run_command(["nmcli", "-g", "GENERAL.CONNECTION", "device", "show", interface])
    return out.strip() if not code and out.strip() not in ("", "--") else None


def keeper(index, interface):
    """Returns the file in which the interface's manager keeps addresses, and a function that
    formats an address for this file. Both are None if neither systemd-networkd nor
    /etc/network/interfaces manages the interface."""
    found = re.search(r"^NETWORK_FILE=(.+)$", read("/run/systemd/netif/links/%s" % index), re.MULTILINE)
    if found:
        folder = "/etc/systemd/network/%s.d" % os.path.basename(found.group(1))
        return folder + "/sprat.conf", lambda net: "[Address]\nAddress=%s\n" % net
    words = read("/etc/network/interfaces")
    more = "/etc/network/interfaces.d"
    texts = [words] + [read(os.path.join(more, name)) for name in (os.listdir(more) if os.path.isdir(more) else [])]
    if any(re.search(r"^\s*iface\s+%s\s" % re.escape(interface), text, re.MULTILINE) for text in texts):
        if re.search(r"^\s*source(-directory)?\s+(/etc/network/)?interfaces\.d", words, re.MULTILINE):
            kind = lambda net: "inet6" if ":" in net else "inet"
            return more + "/sprat", lambda net: "iface %s %s static\n    address %s\n" % (interface, kind(net), net)
    return None, None


def main():
    module = AnsibleModule(
        argument_spec={
            "own": {"type": "str", "required": True},
            "addresses": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    own, wanted = module.params["own"], module.params["addresses"]
    links = json.loads(module.run_command(["ip", "-json", "address"], check_rc=True)[1])
    at = [(link, net) for link in links for net in link.get("addr_info", []) if net.get("local") == own]
    if not at:
        module.fail_json(
            msg="no interface has %s, the server's own address in the plan: configure it first"
            % own
        )
    link, net = at[0]
    interface, prefix = link["ifname"], net["prefixlen"]
    has = [one["local"] for one in link["addr_info"]]
    managed = profile(module, interface)
    path, entry = (PUT, "address %s\n".__mod__) if managed else keeper(link["ifindex"], interface)
    if path is None:
        module.fail_json(
            msg="neither systemd-networkd nor NetworkManager nor /etc/network/interfaces (with "
            "`source interfaces.d/*`) manages %s, so an address would be lost when the server "
            "restarts: let one of them manage it" % interface
        )
    nets = ["%s/%d" % (one, prefix) for one in wanted]
    text = MARK + "\n" + "".join(entry(one) for one in nets) if nets else ""
    before = read(path)
    kept = re.findall(r"(?im)^\s*address[\s=]+([0-9a-f.:]+)/", before)
    stale = [one for one in kept if one in has and one not in wanted and one != own]
    missing = [one for one in wanted if one not in has]
    # For NetworkManager's profile: `new` are addresses that it lacks; `old` are addresses that an
    # earlier run added and that the plan no longer has.
    new = [one for one in wanted if one not in kept] if managed else []
    old = [one for one in kept if one not in wanted and one != own] if managed else []
    changed = bool(stale or missing or text != before)
    if changed and not module.check_mode:
        for sign, addresses in [("+", new), ("-", old)]:
            for one in addresses:
                setting = sign + ("ipv6" if ":" in one else "ipv4") + ".addresses"
                net = "%s/%d" % (one, prefix)
                module.run_command(["nmcli", "connection", "modify", managed, setting, net], check_rc=True)
        if text != before:
            if text:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
            else:
                os.remove(path)
        for one in missing:
            module.run_command(["ip", "address", "add", "%s/%d" % (one, prefix), "dev", interface], check_rc=True)
        for one in stale:
            module.run_command(["ip", "address", "delete", "%s/%d" % (one, prefix), "dev", interface], check_rc=True)
    now = ["%s has %s" % (interface, one) for one in has if one in wanted or one in stale]
    then = ["%s has %s" % (interface, one) for one in wanted]
    diffs = [
        {"before_header": path, "after_header": path, "before": before, "after": text},
        {"before": "\n".join(now) + "\n", "after": "\n".join(then) + "\n"},
    ]
    module.exit_json(changed=changed, interface=interface, diff=diffs if changed else [])


if __name__ == "__main__":
    main()
