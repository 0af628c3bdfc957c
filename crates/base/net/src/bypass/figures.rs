//! The driver's metrics of its devices.

use super::BypassTx;
use super::port::Port;
use crate::Figure;

impl BypassTx {
    /// Adds metrics of the devices: their state, and how many of their frames are in use.
    pub(crate) fn figures(&self, figures: &mut Vec<Figure>) {
        let sum = |of: fn(&Port) -> usize| self.ports.iter().map(of).sum::<usize>() as u64;
        figures.push(Figure::new("frames_in_use", sum(Port::frames_in_use)));
        figures.push(Figure::new("frames_max", sum(Port::frames_max)));
        #[cfg(feature = "dpdk")]
        if let Some(share) = &self.share {
            let (handed_over, lost) = share.counted();
            figures.push(Figure::new("network_handed_over_total", handed_over));
            figures.push(Figure::new("network_handed_over_lost_total", lost));
        }
        for device in self.ports.iter().map(Port::state) {
            let name = ("device", device.name.as_str());
            let mac = device.mac.to_string();
            let labels = [name, ("driver", device.driver.as_str()), ("mac", mac.as_str())];
            figures.push(Figure::labelled("device_info", &labels, 1));
            let values = [
                ("device_up", u64::from(device.up)),
                ("device_changes_total", device.changes),
                ("device_missed_total", device.missed),
                ("device_errors_total", device.errors),
                ("device_no_buffer_total", device.no_buffer),
            ];
            figures.extend(
                device
                    .steers
                    .map(|steers| Figure::labelled("device_steers", &[name], steers.into())),
            );
            figures.extend(
                values
                    .map(|(name_of_value, value)| Figure::labelled(name_of_value, &[name], value)),
            );
        }
    }
}
