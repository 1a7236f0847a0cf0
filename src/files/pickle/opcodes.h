#pragma once

// Opcodes of pickle protocols 2 to 5 (CPython, Lib/pickletools.py), those that are read or written here.



namespace attentive::pickle::op {

enum Opcode : unsigned char {
  Proto = 0x80,
  Frame = 0x95,
  Stop = '.',
  Mark = '(',
  None = 'N',
  NewTrue = 0x88,
  NewFalse = 0x89,
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  Long1 = 0x8A,
  Long4 = 0x8B,
  BinFloat = 'G',
  BinString = 'T',
  ShortBinString = 'U',
  BinUnicode = 'X',
  ShortBinUnicode = 0x8C,
  BinUnicode8 = 0x8D,
  BinBytes = 'B',
  ShortBinBytes = 'C',
  BinBytes8 = 0x8E,
  ByteArray8 = 0x96,
  EmptyList = ']',
  Append = 'a',
  Appends = 'e',
  EmptyTuple = ')',
  Tuple = 't',
  Tuple1 = 0x85,
  Tuple2 = 0x86,
  Tuple3 = 0x87,
  EmptyDict = '}',
  SetItem = 's',
  SetItems = 'u',
  EmptySet = 0x8F,
  AddItems = 0x90,
  FrozenSet = 0x91,
  BinGet = 'h',
  LongBinGet = 'j',
  BinPut = 'q',
  LongBinPut = 'r',
  Memoize = 0x94,
  Global = 'c',
  StackGlobal = 0x93,
  Reduce = 'R',
  Build = 'b',
  BinPersId = 'Q',
};

}  // namespace attentive::pickle::op
