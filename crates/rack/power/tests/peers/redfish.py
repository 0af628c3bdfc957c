"""A controller that supports Redfish: the emulator of sushy-tools, with power added to its chassis.

redfish.py WAY LOGINS [CERTIFICATE KEY]: WAY is where power is reported. Prints its port. Ends when its input is closed.
"""

import json
import os
import ssl
import sys
import threading

from sushy_tools.emulator import main
from werkzeug.serving import make_server

way, logins, *certificate = sys.argv[1:]
app = main.app
app.configure(extra_config={"SUSHY_EMULATOR_FAKE_DRIVER": True, "SUSHY_EMULATOR_AUTH_FILE": logins})
LINKS = {
    "old": ["Power"],
    "new": ["EnvironmentMetrics", "Power"],
    "supplies": ["PowerSubsystem"],
    "partly": ["PowerSubsystem"],
    "none": [],
}


@app.after_request
def links(answer):
    value = answer.get_json(silent=True)
    if isinstance(value, dict) and "#Chassis.v1" in value.get("@odata.type", ""):
        for name in LINKS[way]:
            value[name] = {"@odata.id": value["@odata.id"] + "/" + name}
        answer.set_data(json.dumps(value))
    return answer


@app.route("/redfish/v1/Chassis/<identity>/<path:what>")
def power(identity, what):
    base = f"/redfish/v1/Chassis/{identity}/PowerSubsystem/PowerSupplies"
    supply = what.split("/")[2] if what.count("/") > 1 else ""
    has_metrics = way != "partly" or supply != "2"
    told = {
        "Power": {"PowerControl": [{"MemberId": "0", "PowerConsumedWatts": 344}, {"MemberId": "1", "PowerConsumedWatts": 90}]},
        "EnvironmentMetrics": {"PowerWatts": {"Reading": 74.5}},
        "PowerSubsystem": {"PowerSupplies": {"@odata.id": base}},
        "PowerSubsystem/PowerSupplies": {"Members": [{"@odata.id": f"{base}/{number}"} for number in (1, 2, 3)]},
        f"PowerSubsystem/PowerSupplies/{supply}": {
            "Name": f"Supply {supply}",
            "Status": {"State": "Absent" if supply == "3" else "Enabled"},
            "Metrics": {"@odata.id": f"{base}/{supply}/Metrics"} if has_metrics else {},
        },
        f"PowerSubsystem/PowerSupplies/{supply}/Metrics": {"InputPowerWatts": {"Reading": None if supply == "3" else 50.25}},
    }
    return (told[what], 200) if what in told else ({"error": {}}, 404)


tls = None
if certificate:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=tls)
print(server.server_port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
server.serve_forever()
