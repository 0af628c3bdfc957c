"""A controller that supports IPMI 2.0 over the network: that of pyghmi, which also answers DCMI power requests.

ipmi.py [WATTS [on|off]]: without WATTS it has no DCMI. Prints its port. Ends when its input is closed.
"""

import os
import struct
import sys
import threading

from pyghmi.ipmi import bmc

DCMI = 0x2C
GET_POWER_READING = 2


class Controller(bmc.Bmc):
    def get_power_state(self):
        return sys.argv[2] if len(sys.argv) > 2 else "on"

    def handle_raw_request(self, request, session):
        if (request["netfn"], request["command"]) == (DCMI, GET_POWER_READING) and len(sys.argv) > 1:
            watts = int(sys.argv[1])
            measured = struct.pack("<BHHHHIIB", 0xDC, watts, 1, 2 * watts, watts, 0, 1000, 0x40)
            return session.send_ipmi_response(data=list(measured))
        return super().handle_raw_request(request, session)


controller = Controller({"admin": "secret"}, port=0, address="127.0.0.1")
controller.port = controller.serversocket.getsockname()[1]  # it finds its sessions by the port
print(controller.port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
controller.listen()
