// SPDX-License-Identifier: GPL-2.0
//! Instructions of BPF, with jumps to labels.

/// A register; R10 is the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub u8);

/// A place that jumps go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

const LD_IMM64: u8 = 0x18;
const LDX_DW: u8 = 0x79;
const LDX_H: u8 = 0x69;
const STX_DW: u8 = 0x7b;
const ADD: u8 = 0x07;
const MOV: u8 = 0xb7;
const MOV_REG: u8 = 0xbf;
const MOV32_REG: u8 = 0xbc;
const AND: u8 = 0x57;
const JA: u8 = 0x05;
const JEQ: u8 = 0x15;
const JNE: u8 = 0x55;
const JEQ_REG: u8 = 0x1d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The source register of [`LD_IMM64`] that says that the number is a map's file descriptor.
const MAP_FD: u8 = 1;

/// A program that is being written.
#[derive(Default)]
pub struct Code {
    insns: Vec<[u8; 8]>,
    /// Where each label is, once it is known.
    labels: Vec<Option<usize>>,
    /// Jumps, and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Code {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, op: u8, dst: u8, src: u8, off: i16, imm: i32) {
        let mut insn = [op, dst | (src << 4), 0, 0, 0, 0, 0, 0];
        insn[2..4].copy_from_slice(&off.to_le_bytes());
        insn[4..].copy_from_slice(&imm.to_le_bytes());
        self.insns.push(insn);
    }

    fn jump(&mut self, op: u8, dst: u8, src: u8, imm: i32, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(op, dst, src, 0, imm);
    }

    /// A label, for [`Self::here`] to place.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Jumps to `label` come here.
    pub fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.insns.len());
    }

    /// `dst` = a number.
    pub fn mov(&mut self, dst: Reg, imm: i32) {
        self.push(MOV, dst.0, 0, 0, imm);
    }

    /// `dst` = `src`.
    pub fn copy(&mut self, dst: Reg, src: Reg) {
        self.push(MOV_REG, dst.0, src.0, 0, 0);
    }

    /// The upper half of a register becomes 0.
    pub fn low_half(&mut self, reg: Reg) {
        self.push(MOV32_REG, reg.0, reg.0, 0, 0);
    }

    /// `dst` += a number.
    pub fn add(&mut self, dst: Reg, imm: i32) {
        self.push(ADD, dst.0, 0, 0, imm);
    }

    /// `dst` &= a number.
    pub fn and(&mut self, dst: Reg, imm: i32) {
        self.push(AND, dst.0, 0, 0, imm);
    }

    /// `dst` = the 64 bits at `src` + `off`.
    pub fn load(&mut self, dst: Reg, src: Reg, off: i16) {
        self.push(LDX_DW, dst.0, src.0, off, 0);
    }

    /// `dst` = the 16 bits at `src` + `off`.
    pub fn load16(&mut self, dst: Reg, src: Reg, off: i16) {
        self.push(LDX_H, dst.0, src.0, off, 0);
    }

    /// The 64 bits at `dst` + `off` = `src`.
    pub fn store(&mut self, dst: Reg, off: i16, src: Reg) {
        self.push(STX_DW, dst.0, src.0, off, 0);
    }

    /// `dst` = 64 bits.
    pub fn mov64(&mut self, dst: Reg, value: u64) {
        self.push(LD_IMM64, dst.0, 0, 0, value as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    /// `dst` = the map that is open as `fd`.
    pub fn map(&mut self, dst: Reg, fd: i32) {
        self.push(LD_IMM64, dst.0, MAP_FD, 0, fd);
        self.push(0, 0, 0, 0, 0);
    }

    /// Calls a helper of the kernel.
    pub fn call(&mut self, helper: i32) {
        self.push(CALL, 0, 0, 0, helper);
    }

    /// Jumps.
    pub fn go(&mut self, to: Label) {
        self.jump(JA, 0, 0, 0, to);
    }

    /// Jumps if `reg` is `imm`.
    pub fn if_eq(&mut self, reg: Reg, imm: i32, to: Label) {
        self.jump(JEQ, reg.0, 0, imm, to);
    }

    /// Jumps if `reg` is not `imm`.
    pub fn if_ne(&mut self, reg: Reg, imm: i32, to: Label) {
        self.jump(JNE, reg.0, 0, imm, to);
    }

    /// Jumps if both registers are the same.
    pub fn if_same(&mut self, a: Reg, b: Reg, to: Label) {
        self.jump(JEQ_REG, a.0, b.0, 0, to);
    }

    /// The end, with R0 as the result.
    pub fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// The whole program, 8 bytes an instruction.
    ///
    /// # Panics
    ///
    /// If a jump goes to a label that is not placed, or further than a jump can.
    pub fn finish(mut self) -> Vec<u8> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("a label that is not placed");
            let off = i16::try_from(to as i64 - at as i64 - 1).expect("a jump that is too long");
            self.insns[at][2..4].copy_from_slice(&off.to_le_bytes());
        }
        self.insns.concat()
    }
}
