//! The kernels that come with this crate, as text.

/// A kernel that comes with this crate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ready {
    /// The kernel's name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The kernel's text. Its first comment names its source.
    pub text: &'static str,
}

/// All kernels that come with this crate.
pub const READY: &[Ready] = &[
    Ready {
        name: "gravity",
        about: "acceleration and potential by a softened Newtonian force, 38 operations a pair",
        text: include_str!("../kernels/gravity.kernel"),
    },
    Ready {
        name: "gravity-jerk",
        about: "the same and the acceleration's change in time, for Hermite integrators, 60 \
                operations a pair",
        text: include_str!("../kernels/gravity-jerk.kernel"),
    },
    Ready {
        name: "lennard-jones",
        about: "van der Waals force and potential, cut off, 40 operations a pair",
        text: include_str!("../kernels/lennard-jones.kernel"),
    },
    Ready {
        name: "gaussian",
        about: "a sum of Gaussians: density estimates, kernel regression",
        text: include_str!("../kernels/gaussian.kernel"),
    },
    Ready {
        name: "nearest",
        about: "the nearest other particle, and its distance squared",
        text: include_str!("../kernels/nearest.kernel"),
    },
    Ready {
        name: "sph-density",
        about: "density by the cubic spline of smoothed particle hydrodynamics, and the count of \
                neighbours",
        text: include_str!("../kernels/sph-density.kernel"),
    },
];

/// Returns the kernel of this name.
#[must_use]
pub fn ready(name: &str) -> Option<&'static Ready> {
    READY.iter().find(|ready| ready.name == name)
}
