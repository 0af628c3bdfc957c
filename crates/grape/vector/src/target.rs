//! The instruction sets for which kernels are compiled.

/// An instruction set for which a kernel is compiled.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// 32 registers of 512 bits, and masks (x86-64 with AVX-512 F, DQ, VL and BW).
    Avx512,
    /// 16 registers of 256 bits (x86-64 with AVX2 and FMA).
    Avx2,
    /// Loops over arrays, for any processor. The Rust compiler vectorizes them where it can.
    Portable,
}

impl Target {
    /// Returns the best target that this processor supports.
    #[must_use]
    pub fn best() -> Self {
        [Self::Avx512, Self::Avx2]
            .into_iter()
            .find(|target| target.is_supported())
            .unwrap_or(Self::Portable)
    }

    /// Returns whether this processor can run code for this target.
    #[must_use]
    pub fn is_supported(self) -> bool {
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

    /// Returns the number of lanes of a vector. `wide` says whether it holds 64-bit numbers.
    #[must_use]
    pub fn lanes(self, wide: bool) -> usize {
        let narrow = match self {
            Self::Avx512 => 16,
            Self::Avx2 => 8,
            Self::Portable => return crate::lanes::LANES,
        };
        if wide { narrow / 2 } else { narrow }
    }

    /// Returns the number of vector registers.
    pub(crate) fn registers(self) -> usize {
        match self {
            Self::Avx512 => 32,
            Self::Avx2 | Self::Portable => 16,
        }
    }
}
