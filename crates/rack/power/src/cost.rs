//! What servers cost over the years: to buy, and to run. Sums and products of what is told, every
//! part of which is in the answer.

use crate::Watts;
use serde::Serialize;
use sprat_plan::power::{Cost, CostOption};

/// Hours of a year: 365.25 days.
pub const HOURS: f64 = 8_766.0;

/// Servers that were published side by side ("IPU-based Cassandra cluster", SNIA Storage Developer
/// Conference, 2024), each at what the whole server takes: a board of 40 W with four disks of 8 W
/// carries two instances of Cassandra, 36 W each; an x86 server of 1,200 to 1,500 W carries four,
/// 300 to 375 W each. Prices were not published.
#[must_use]
pub fn published() -> Vec<CostOption> {
    let option = |name: &str, power, instances| CostOption {
        name: name.to_owned(),
        power: Watts(power),
        instances,
        price: 0.0,
    };
    vec![
        option("mini server", 72.0, 2),
        option("x86, least", 1_200.0, 4),
        option("x86, most", 1_500.0, 4),
    ]
}

/// What one kind of server comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Total {
    /// What was told of it.
    pub option: CostOption,
    /// Servers for all instances.
    pub servers: u32,
    /// Power for each instance that there is to be, W.
    pub watts_per_instance: Watts,
    /// Power of all servers, W.
    pub watts: Watts,
    /// The same with what the building takes, W.
    pub watts_with_building: Watts,
    /// Energy of a year, kWh.
    pub kwh_per_year: f64,
    /// What that costs.
    pub energy_per_year: f64,
    /// What it costs over all years.
    pub energy: f64,
    /// What servers cost to buy.
    pub purchase: f64,
    /// All of it.
    pub total: f64,
    /// For each instance.
    pub total_per_instance: f64,
    /// CO2 of the energy over all years, kg.
    pub carbon: Option<f64>,
}

/// What all options come to, in their order.
#[must_use]
pub fn totals(cost: &Cost) -> Vec<Total> {
    cost.options.iter().map(|option| total(cost, option)).collect()
}

fn total(cost: &Cost, option: &CostOption) -> Total {
    let servers = cost.instances.div_ceil(option.instances.max(1));
    let instances = f64::from(cost.instances.max(1));
    let watts = option.power.times(f64::from(servers));
    let building = watts.times(cost.pue);
    let kwh_per_year = building.0 / 1e3 * HOURS;
    let energy = kwh_per_year * cost.kwh * cost.years;
    let purchase = option.price * f64::from(servers);
    Total {
        option: option.clone(),
        servers,
        watts_per_instance: watts.times(1.0 / instances),
        watts,
        watts_with_building: building,
        kwh_per_year,
        energy_per_year: kwh_per_year * cost.kwh,
        energy,
        purchase,
        total: energy + purchase,
        total_per_instance: (energy + purchase) / instances,
        carbon: cost.carbon.map(|grams| kwh_per_year * cost.years * grams / 1e3),
    }
}
