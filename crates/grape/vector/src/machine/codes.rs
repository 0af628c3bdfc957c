//! The encodings of operations, by the size of vectors and numbers.

use crate::ir::{Kind, Op};
use crate::target::Target;
use iced_x86::Code;

/// The encodings of one operation. The first three are VEX: 32-bit numbers in 128 and in 256 bits,
/// and 64-bit numbers in 256 bits. The others are EVEX: 32-bit numbers in 256 and in 512 bits, and
/// 64-bit numbers in 512 bits.
type Codes = [Code; 6];

/// Returns the index of an encoding in [`Codes`].
pub(super) fn form(target: Target, wide: bool, kind: Kind) -> usize {
    let base = if target == Target::Avx512 { 3 } else { 0 };
    match kind {
        Kind::F64 => base + 2,
        _ if wide => base,
        _ => base + 1,
    }
}

/// Returns the encoding of an operation. [`fused`] returns those of fused multiply-adds.
pub(super) fn code(op: Op, form: usize) -> Code {
    match op {
        Op::MaskAnd => Code::VEX_Kandw_kr_kr_kr,
        Op::MaskOr => Code::VEX_Korw_kr_kr_kr,
        Op::MaskNot => Code::VEX_Knotw_kr_kr,
        _ => codes(op)[form],
    }
}

/// Returns the encoding of `dst = dst * third + second` (order 0), `dst = second * dst + third`
/// (order 1) or `dst = second * third + dst` (order 2).
pub(super) fn fused(negated: bool, order: usize, form: usize) -> Code {
    if negated { FNMA[order][form] } else { FMA[order][form] }
}

fn codes(op: Op) -> &'static Codes {
    match op {
        Op::Add => &ADD,
        Op::Sub => &SUB,
        Op::Mul => &MUL,
        Op::Div => &DIV,
        Op::Min => &MIN,
        Op::Max => &MAX,
        Op::And => &AND,
        Op::Or => &OR,
        Op::Xor => &XOR,
        Op::Sqrt => &SQRT,
        Op::Estimate => &ESTIMATE,
        Op::Round => &ROUND,
        Op::Scale => &SCALE,
        Op::Shift(_) => &SHIFT,
        Op::Convert => &CONVERT,
        Op::Compare(_) => &COMPARE,
        Op::Blend => &BLEND,
        Op::Fma | Op::Fnma | Op::MaskAnd | Op::MaskOr | Op::MaskNot => {
            unreachable!("encoded by others")
        }
    }
}

const ADD: Codes = [
    Code::VEX_Vaddps_xmm_xmm_xmmm128,
    Code::VEX_Vaddps_ymm_ymm_ymmm256,
    Code::VEX_Vaddpd_ymm_ymm_ymmm256,
    Code::EVEX_Vaddps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er,
    Code::EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er,
];

const SUB: Codes = [
    Code::VEX_Vsubps_xmm_xmm_xmmm128,
    Code::VEX_Vsubps_ymm_ymm_ymmm256,
    Code::VEX_Vsubpd_ymm_ymm_ymmm256,
    Code::EVEX_Vsubps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er,
    Code::EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er,
];

const MUL: Codes = [
    Code::VEX_Vmulps_xmm_xmm_xmmm128,
    Code::VEX_Vmulps_ymm_ymm_ymmm256,
    Code::VEX_Vmulpd_ymm_ymm_ymmm256,
    Code::EVEX_Vmulps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er,
    Code::EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er,
];

const DIV: Codes = [
    Code::VEX_Vdivps_xmm_xmm_xmmm128,
    Code::VEX_Vdivps_ymm_ymm_ymmm256,
    Code::VEX_Vdivpd_ymm_ymm_ymmm256,
    Code::EVEX_Vdivps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er,
    Code::EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er,
];

const MIN: Codes = [
    Code::VEX_Vminps_xmm_xmm_xmmm128,
    Code::VEX_Vminps_ymm_ymm_ymmm256,
    Code::VEX_Vminpd_ymm_ymm_ymmm256,
    Code::EVEX_Vminps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae,
    Code::EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae,
];

const MAX: Codes = [
    Code::VEX_Vmaxps_xmm_xmm_xmmm128,
    Code::VEX_Vmaxps_ymm_ymm_ymmm256,
    Code::VEX_Vmaxpd_ymm_ymm_ymmm256,
    Code::EVEX_Vmaxps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae,
    Code::EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae,
];

const AND: Codes = [
    Code::VEX_Vandps_xmm_xmm_xmmm128,
    Code::VEX_Vandps_ymm_ymm_ymmm256,
    Code::VEX_Vandpd_ymm_ymm_ymmm256,
    Code::EVEX_Vandps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vandps_zmm_k1z_zmm_zmmm512b32,
    Code::EVEX_Vandpd_zmm_k1z_zmm_zmmm512b64,
];

const OR: Codes = [
    Code::VEX_Vorps_xmm_xmm_xmmm128,
    Code::VEX_Vorps_ymm_ymm_ymmm256,
    Code::VEX_Vorpd_ymm_ymm_ymmm256,
    Code::EVEX_Vorps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vorps_zmm_k1z_zmm_zmmm512b32,
    Code::EVEX_Vorpd_zmm_k1z_zmm_zmmm512b64,
];

const XOR: Codes = [
    Code::VEX_Vxorps_xmm_xmm_xmmm128,
    Code::VEX_Vxorps_ymm_ymm_ymmm256,
    Code::VEX_Vxorpd_ymm_ymm_ymmm256,
    Code::EVEX_Vxorps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vxorps_zmm_k1z_zmm_zmmm512b32,
    Code::EVEX_Vxorpd_zmm_k1z_zmm_zmmm512b64,
];

const SQRT: Codes = [
    Code::VEX_Vsqrtps_xmm_xmmm128,
    Code::VEX_Vsqrtps_ymm_ymmm256,
    Code::VEX_Vsqrtpd_ymm_ymmm256,
    Code::EVEX_Vsqrtps_ymm_k1z_ymmm256b32,
    Code::EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er,
    Code::EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er,
];

const ESTIMATE: Codes = [
    Code::VEX_Vrsqrtps_xmm_xmmm128,
    Code::VEX_Vrsqrtps_ymm_ymmm256,
    Code::INVALID,
    Code::EVEX_Vrsqrt14ps_ymm_k1z_ymmm256b32,
    Code::EVEX_Vrsqrt14ps_zmm_k1z_zmmm512b32,
    Code::EVEX_Vrsqrt14pd_zmm_k1z_zmmm512b64,
];

const ROUND: Codes = [
    Code::VEX_Vroundps_xmm_xmmm128_imm8,
    Code::VEX_Vroundps_ymm_ymmm256_imm8,
    Code::VEX_Vroundpd_ymm_ymmm256_imm8,
    Code::EVEX_Vrndscaleps_ymm_k1z_ymmm256b32_imm8,
    Code::EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae,
    Code::EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae,
];

const SCALE: Codes = [
    Code::INVALID,
    Code::INVALID,
    Code::INVALID,
    Code::EVEX_Vscalefps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er,
    Code::EVEX_Vscalefpd_zmm_k1z_zmm_zmmm512b64_er,
];

const SHIFT: Codes = [
    Code::VEX_Vpslld_xmm_xmm_imm8,
    Code::VEX_Vpslld_ymm_ymm_imm8,
    Code::VEX_Vpsllq_ymm_ymm_imm8,
    Code::INVALID,
    Code::INVALID,
    Code::INVALID,
];

/// Conversions to numbers of this type.
const CONVERT: Codes = [
    Code::VEX_Vcvtpd2ps_xmm_ymmm256,
    Code::INVALID,
    Code::VEX_Vcvtps2pd_ymm_xmmm128,
    Code::EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er,
    Code::INVALID,
    Code::EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae,
];

const COMPARE: Codes = [
    Code::VEX_Vcmpps_xmm_xmm_xmmm128_imm8,
    Code::VEX_Vcmpps_ymm_ymm_ymmm256_imm8,
    Code::VEX_Vcmppd_ymm_ymm_ymmm256_imm8,
    Code::EVEX_Vcmpps_kr_k1_ymm_ymmm256b32_imm8,
    Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae,
    Code::EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae,
];

const BLEND: Codes = [
    Code::VEX_Vblendvps_xmm_xmm_xmmm128_xmm,
    Code::VEX_Vblendvps_ymm_ymm_ymmm256_ymm,
    Code::VEX_Vblendvpd_ymm_ymm_ymmm256_ymm,
    Code::EVEX_Vblendmps_ymm_k1z_ymm_ymmm256b32,
    Code::EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32,
    Code::EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64,
];

const FMA: [Codes; 3] = [
    [
        Code::VEX_Vfmadd132ps_xmm_xmm_xmmm128,
        Code::VEX_Vfmadd132ps_ymm_ymm_ymmm256,
        Code::VEX_Vfmadd132pd_ymm_ymm_ymmm256,
        Code::EVEX_Vfmadd132ps_ymm_k1z_ymm_ymmm256b32,
        Code::EVEX_Vfmadd132ps_zmm_k1z_zmm_zmmm512b32_er,
        Code::EVEX_Vfmadd132pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
    [
        Code::VEX_Vfmadd213ps_xmm_xmm_xmmm128,
        Code::VEX_Vfmadd213ps_ymm_ymm_ymmm256,
        Code::VEX_Vfmadd213pd_ymm_ymm_ymmm256,
        Code::EVEX_Vfmadd213ps_ymm_k1z_ymm_ymmm256b32,
        Code::EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er,
        Code::EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
    [
        Code::VEX_Vfmadd231ps_xmm_xmm_xmmm128,
        Code::VEX_Vfmadd231ps_ymm_ymm_ymmm256,
        Code::VEX_Vfmadd231pd_ymm_ymm_ymmm256,
        Code::EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32,
        Code::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er,
        Code::EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
];

const FNMA: [Codes; 3] = [
    [
        Code::VEX_Vfnmadd132ps_xmm_xmm_xmmm128,
        Code::VEX_Vfnmadd132ps_ymm_ymm_ymmm256,
        Code::VEX_Vfnmadd132pd_ymm_ymm_ymmm256,
        Code::EVEX_Vfnmadd132ps_ymm_k1z_ymm_ymmm256b32,
        Code::EVEX_Vfnmadd132ps_zmm_k1z_zmm_zmmm512b32_er,
        Code::EVEX_Vfnmadd132pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
    [
        Code::VEX_Vfnmadd213ps_xmm_xmm_xmmm128,
        Code::VEX_Vfnmadd213ps_ymm_ymm_ymmm256,
        Code::VEX_Vfnmadd213pd_ymm_ymm_ymmm256,
        Code::EVEX_Vfnmadd213ps_ymm_k1z_ymm_ymmm256b32,
        Code::EVEX_Vfnmadd213ps_zmm_k1z_zmm_zmmm512b32_er,
        Code::EVEX_Vfnmadd213pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
    [
        Code::VEX_Vfnmadd231ps_xmm_xmm_xmmm128,
        Code::VEX_Vfnmadd231ps_ymm_ymm_ymmm256,
        Code::VEX_Vfnmadd231pd_ymm_ymm_ymmm256,
        Code::EVEX_Vfnmadd231ps_ymm_k1z_ymm_ymmm256b32,
        Code::EVEX_Vfnmadd231ps_zmm_k1z_zmm_zmmm512b32_er,
        Code::EVEX_Vfnmadd231pd_zmm_k1z_zmm_zmmm512b64_er,
    ],
];

/// Loads from memory, and copies between registers.
pub(super) const LOAD: Codes = [
    Code::VEX_Vmovups_xmm_xmmm128,
    Code::VEX_Vmovups_ymm_ymmm256,
    Code::VEX_Vmovupd_ymm_ymmm256,
    Code::EVEX_Vmovups_ymm_k1z_ymmm256,
    Code::EVEX_Vmovups_zmm_k1z_zmmm512,
    Code::EVEX_Vmovupd_zmm_k1z_zmmm512,
];

/// Stores to memory.
pub(super) const STORE: Codes = [
    Code::VEX_Vmovups_xmmm128_xmm,
    Code::VEX_Vmovups_ymmm256_ymm,
    Code::VEX_Vmovupd_ymmm256_ymm,
    Code::EVEX_Vmovups_ymmm256_k1z_ymm,
    Code::EVEX_Vmovups_zmmm512_k1z_zmm,
    Code::EVEX_Vmovupd_zmmm512_k1z_zmm,
];

/// Broadcasts of one number from memory to all lanes.
pub(super) const SPREAD: Codes = [
    Code::VEX_Vbroadcastss_xmm_m32,
    Code::VEX_Vbroadcastss_ymm_m32,
    Code::VEX_Vbroadcastsd_ymm_m64,
    Code::EVEX_Vbroadcastss_ymm_k1z_xmmm32,
    Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
    Code::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
];
