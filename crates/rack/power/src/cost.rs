//! Computes what servers cost over the years: purchase and energy, with each intermediate sum.

use crate::Watts;
use serde::Serialize;
use sprat_plan::power::{Cost, CostOption};

/// Hours of a year of 365.25 days.
pub const HOURS: f64 = 8_766.0;

/// Returns the servers of a published comparison ("IPU-based Cassandra cluster", SNIA Storage
/// Developer Conference, 2024). The power is that of the whole server. A board of 40 W with four
/// disks of 8 W runs two instances of Cassandra: 36 W per instance. An x86 server of 1,200 to 1,500
/// W runs four instances: 300 to 375 W per instance. Prices were not published.
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

/// The cost of running all instances on servers of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OptionCost {
    /// The type of server.
    pub option: CostOption,
    /// Servers needed for all instances.
    pub servers: u32,
    /// Power per instance, W.
    pub watts_per_instance: Watts,
    /// Power of all servers, W.
    pub watts: Watts,
    /// Power of all servers, including the building's overhead, W.
    pub watts_with_building: Watts,
    /// Energy per year, including the building's overhead, kWh.
    pub kwh_per_year: f64,
    /// Cost of the energy per year.
    pub energy_per_year: f64,
    /// Cost of the energy over all years.
    pub energy: f64,
    /// Purchase price of all servers.
    pub purchase: f64,
    /// Purchase and energy over all years.
    pub total: f64,
    /// Purchase and energy over all years, per instance.
    pub total_per_instance: f64,
    /// CO2 of the energy over all years, kg. `None` if the description states no CO2 per kWh.
    pub carbon: Option<f64>,
}

/// Returns the costs of all options, in their order.
#[must_use]
pub fn totals(cost: &Cost) -> Vec<OptionCost> {
    cost.options.iter().map(|option| total(cost, option)).collect()
}

fn total(cost: &Cost, option: &CostOption) -> OptionCost {
    let servers = cost.instances.div_ceil(option.instances.max(1));
    let instances = f64::from(cost.instances.max(1));
    let watts = option.power.times(f64::from(servers));
    let building = watts.times(cost.pue);
    let kwh_per_year = building.0 / 1e3 * HOURS;
    let energy = kwh_per_year * cost.kwh * cost.years;
    let purchase = option.price * f64::from(servers);
    OptionCost {
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
