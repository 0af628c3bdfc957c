//! For what a kernel is compiled.

/// For what a kernel is compiled.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// 32 registers of 512 bits, and masks (x86-64 with AVX-512 F, DQ, VL and BW).
    Avx512,
    /// 16 registers of 256 bits (x86-64 with AVX2 and FMA).
    Avx2,
    /// Any processor: loops over arrays, which the compiler of this program made vectors of where
    /// it could.
    Portable,
}

impl Target {
    /// The best that this processor has.
    #[must_use]
    pub fn best() -> Self {
        [Self::Avx512, Self::Avx2]
            .into_iter()
            .find(|target| target.here())
            .unwrap_or(Self::Portable)
    }

    /// Whether this processor can run what is compiled for it.
    #[must_use]
    pub fn here(self) -> bool {
        #[cfg(all(target_arch = "x86_64", unix))]
        let (avx512, avx2) = (
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw"),
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
        );
        #[cfg(not(all(target_arch = "x86_64", unix)))]
        let (avx512, avx2) = (false, false);
        match self {
            Self::Avx512 => avx512,
            Self::Avx2 => avx2,
            Self::Portable => true,
        }
    }

    /// Lanes of a vector.
    #[must_use]
    pub fn lanes(self, wide: bool) -> usize {
        let narrow = match self {
            Self::Avx512 => 16,
            Self::Avx2 => 8,
            Self::Portable => return crate::lanes::LANES,
        };
        if wide { narrow / 2 } else { narrow }
    }

    /// Registers for vectors.
    pub(crate) fn registers(self) -> usize {
        match self {
            Self::Avx512 => 32,
            Self::Avx2 | Self::Portable => 16,
        }
    }
}
