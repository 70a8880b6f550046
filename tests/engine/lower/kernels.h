// Small kernels in the text form, one for each thing that lowering can get wrong.
#pragma once

#include "absl/strings/string_view.h"

namespace beamd::testing {

struct SmallKernel {
  absl::string_view name;
  absl::string_view text;
  // float32 inputs get NaN, both infinities and -0 among their elements.
  bool odd_floats = false;
};

constexpr SmallKernel kSmallKernels[] = {
    // 5 elements before and 3 behind 12: what is outside reads as 0.
    {"PadReadsZeros", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (3,20) strides (20,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (3,20) strides (12,1) offset -5 mask (0:3,5:17)]
%4 = LOAD float32 (%2, %3)
%5 = ADD float32 (%4, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"NoColumns", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (3,0) strides (1,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (3,0) strides (1,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = ADD float32 (%4, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"NoRows", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (0,16,1) strides (16,1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (0,16,24) strides (0,24,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (2)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"MaxOverNothing", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (16,0) strides (1,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) MAX axes (1)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    // Only the middle of the output is stored.
    {"MaskedStoresLeaveTheRest", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (4,16) strides (16,1) offset 0 mask (1:4,3:13)]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (4,16) strides (16,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = MUL int32 (%4, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"Flip", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (6,16) strides (16,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (6,16) strides (-16,-1) offset 95]
%4 = LOAD float32 (%2, %3)
%5 = SQRT float32 (%4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"Transpose", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (16,24) strides (24,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (16,24) strides (1,16) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = STORE void (%0, %1, %4)
%6 = SINK void (%5))"},

    {"EverySecondAndEveryThird", R"(
%0 = DEFINE_GLOBAL global int16* slot 0
%1 = VIEW void view[shape (5,16) strides (16,1) offset 0]
%2 = DEFINE_GLOBAL global int16* slot 1
%3 = VIEW void view[shape (5,16) strides (32,2) offset 1]
%4 = LOAD int16 (%2, %3)
%5 = VIEW void view[shape (5,16) strides (48,3) offset 2]
%6 = LOAD int16 (%2, %5)
%7 = ADD int16 (%4, %6)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8))"},

    {"RowSum", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (12,48) strides (48,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (1)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"ColumnProduct", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (1,30) strides (0,1) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (20,30) strides (30,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = REDUCE_AXIS int32 (%4) MUL axes (0)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"FullReduce", R"(
%0 = DEFINE_GLOBAL global float64* slot 0
%1 = VIEW void view[shape (1,1) strides (0,0) offset 0]
%2 = DEFINE_GLOBAL global float64* slot 1
%3 = VIEW void view[shape (21,40) strides (40,1) offset 0]
%4 = LOAD float64 (%2, %3)
%5 = MUL float64 (%4, %4)
%6 = REDUCE_AXIS float64 (%5) ADD axes (0,1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))"},

    {"MaxOfNaNs", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (1,32) strides (0,1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (9,32) strides (32,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) MAX axes (0)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))",
     true},

    {"SelectAndCompareNaNs", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (96) strides (1) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = LOAD float32 (%2, %1)
%4 = DEFINE_GLOBAL global float32* slot 2
%5 = LOAD float32 (%4, %1)
%6 = CMPLT bool (%3, %5)
%7 = CMPNE bool (%3, %5)
%8 = RECIP float32 (%5)
%9 = WHERE float32 (%6, %3, %8)
%10 = MAX float32 (%9, %5)
%11 = WHERE float32 (%7, %10, %3)
%12 = STORE void (%0, %1, %11)
%13 = SINK void (%12))",
     true},

    // (7,5) = (7,13) times (13,5): nothing divides.
    {"OddMatmul", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (7,5,1) strides (5,1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (7,5,13) strides (13,0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (7,5,13) strides (0,1,5) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (2)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))"},

    {"IntegerMatmul", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (16,8,1) strides (8,1,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (16,8,12) strides (12,0,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = DEFINE_GLOBAL global int32* slot 2
%6 = VIEW void view[shape (16,8,12) strides (0,1,8) offset 0]
%7 = LOAD int32 (%5, %6)
%8 = MUL int32 (%4, %7)
%9 = REDUCE_AXIS int32 (%8) ADD axes (2)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))"},

    // Windows of 3 over 16 elements with one of padding at both ends, times weights, channels
    // summed.
    {"PaddedWindows", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,16,1,1) strides (16,1,0,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (3,18) strides (16,1) offset -1 mask (0:3,1:17)] view[shape (4,16,3,3) strides (0,1,18,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (4,16,3,3) strides (9,0,3,1) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (2,3)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))"},

    {"InPlace", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (8,12) strides (12,1) offset 0]
%2 = LOAD float32 (%0, %1)
%3 = DEFINE_GLOBAL global float32* slot 1
%4 = VIEW void view[shape (8,12) strides (0,1) offset 0]
%5 = LOAD float32 (%3, %4)
%6 = ADD float32 (%2, %5)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))"},

    {"TwoOutputs", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (6,10) strides (10,1) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (6,10) strides (1,6) offset 0]
%4 = DEFINE_GLOBAL global int32* slot 2
%5 = LOAD int32 (%4, %1)
%6 = ADD int32 (%5, %5)
%7 = MUL int32 (%5, %6)
%8 = STORE void (%0, %1, %6)
%9 = STORE void (%2, %3, %7)
%10 = SINK void (%8, %9))"},

    // Every node rounds to its dtype; the sum is of float32.
    {"Halves", R"(
%0 = DEFINE_GLOBAL global float16* slot 0
%1 = VIEW void view[shape (9,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float16* slot 1
%3 = VIEW void view[shape (9,24) strides (24,1) offset 0]
%4 = LOAD float16 (%2, %3)
%5 = DEFINE_GLOBAL global bfloat16* slot 2
%6 = LOAD bfloat16 (%5, %3)
%7 = CAST float16 (%6)
%8 = MUL float16 (%4, %7)
%9 = CAST float32 (%8)
%10 = REDUCE_AXIS float32 (%9) ADD axes (1)
%11 = CAST float16 (%10)
%12 = STORE void (%0, %1, %11)
%13 = SINK void (%12))"},

    {"BFloatArithmetic", R"(
%0 = DEFINE_GLOBAL global bfloat16* slot 0
%1 = VIEW void view[shape (72) strides (1) offset 0]
%2 = DEFINE_GLOBAL global bfloat16* slot 1
%3 = LOAD bfloat16 (%2, %1)
%4 = MUL bfloat16 (%3, %3)
%5 = ADD bfloat16 (%4, %3)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    {"BytesWrap", R"(
%0 = DEFINE_GLOBAL global int8* slot 0
%1 = VIEW void view[shape (1,48) strides (0,1) offset 0]
%2 = DEFINE_GLOBAL global int8* slot 1
%3 = VIEW void view[shape (10,48) strides (48,1) offset 0]
%4 = LOAD int8 (%2, %3)
%5 = MUL int8 (%4, %4)
%6 = REDUCE_AXIS int8 (%5) ADD axes (0)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))"},

    {"QuotientsOfBytes", R"(
%0 = DEFINE_GLOBAL global int8* slot 0
%1 = VIEW void view[shape (64) strides (1) offset 0]
%2 = DEFINE_GLOBAL global int8* slot 1
%3 = LOAD int8 (%2, %1)
%4 = DEFINE_GLOBAL global int8* slot 2
%5 = LOAD int8 (%4, %1)
%6 = IDIV int8 (%3, %5)
%7 = MOD int8 (%3, %5)
%8 = XOR int8 (%6, %7)
%9 = STORE void (%0, %1, %8)
%10 = SINK void (%9))"},

    {"AnyOfBools", R"(
%0 = DEFINE_GLOBAL global bool* slot 0
%1 = VIEW void view[shape (16,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (16,12) strides (12,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = CONST int32 -80
%6 = CMPLT bool (%4, %5)
%7 = REDUCE_AXIS bool (%6) MAX axes (1)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8))"},

    // The length of the rows is a variable; rows are 10 apart.
    {"SymbolicSum", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = DEFINE_VAR int32 var "n" 1..10
%4 = VIEW void (%3) view[shape (12,$0) strides (10,1) offset 0]
%5 = LOAD float32 (%2, %4)
%6 = REDUCE_AXIS float32 (%5) ADD axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))"},

    {"SymbolicRows", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = DEFINE_VAR int32 var "n" 1..9
%2 = VIEW void (%1) view[shape ($0,16) strides (16,1) offset 0]
%3 = DEFINE_GLOBAL global int32* slot 1
%4 = LOAD int32 (%3, %2)
%5 = ADD int32 (%4, %1)
%6 = STORE void (%0, %2, %5)
%7 = SINK void (%6))"},

    // A variable is asked for its validity, as programs with a symbolic mean do.
    {"ValidVariable", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = DEFINE_VAR int32 var "n" 1..10
%4 = VIEW void (%3) view[shape (12,$0) strides (10,1) offset 0]
%5 = LOAD float32 (%2, %4)
%6 = VALID bool (%3)
%7 = CAST float32 (%3)
%8 = CONST float32 0.0
%9 = WHERE float32 (%6, %7, %8)
%10 = ADD float32 (%5, %9)
%11 = REDUCE_AXIS float32 (%10) ADD axes (1)
%12 = MUL float32 (%11, %9)
%13 = STORE void (%0, %1, %12)
%14 = SINK void (%13))"},

    {"SumOfNothing", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (12,0) strides (0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) ADD axes (1)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    // The value of the infinite does not vary along the axis that has no elements.
    {"SumOfNoInfinities", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (12,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (12,0) strides (1,0) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = RECIP float32 (%4)
%6 = REDUCE_AXIS float32 (%5) ADD axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))",
     true},

    // How many of the first i + 1 there are, less 1: i.
    {"Arange", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (24,1) strides (1,0) offset 0]
%2 = VIEW void view[shape (25,47) strides (0,0) offset 0 mask (0:25,23:47)] view[shape (24,24) strides (1,48) offset 0]
%3 = VALID bool (%2)
%4 = CONST int32 1
%5 = CONST int32 0
%6 = WHERE int32 (%3, %4, %5)
%7 = REDUCE_AXIS int32 (%6) ADD axes (1)
%8 = CONST int32 -1
%9 = ADD int32 (%7, %8)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))"},

    // The same counted in float32, times what is looked up.
    {"CountedFloats", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (24,1) strides (1,0) offset 0]
%2 = VIEW void view[shape (25,47) strides (0,0) offset 0 mask (0:25,23:47)] view[shape (24,24) strides (1,48) offset 0]
%3 = VALID bool (%2)
%4 = DEFINE_GLOBAL global float32* slot 1
%5 = VIEW void view[shape (24,24) strides (1,0) offset 0]
%6 = LOAD float32 (%4, %5)
%7 = CONST float32 0.0
%8 = WHERE float32 (%3, %6, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (1)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))",
     true},

    // Over the same axes, of which only one sum needs both loops.
    {"SumsOfOneNestThatOneNeeds", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (8,1,1) strides (1,0,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (8,6,10) strides (60,10,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = REDUCE_AXIS int32 (%4) ADD axes (1,2)
%6 = DEFINE_GLOBAL global int32* slot 2
%7 = VIEW void view[shape (8,6,10) strides (10,0,1) offset 0]
%8 = LOAD int32 (%6, %7)
%9 = REDUCE_AXIS int32 (%8) ADD axes (1,2)
%10 = VIEW void view[shape (8,6,10) strides (6,1,0) offset 0]
%11 = LOAD int32 (%6, %10)
%12 = REDUCE_AXIS int32 (%11) ADD axes (1,2)
%13 = XOR int32 (%5, %9)
%14 = XOR int32 (%13, %12)
%15 = STORE void (%0, %1, %14)
%16 = SINK void (%15))"},

    // One sum of a nest varies with the output's loops, and what is made of the other does not.
    {"WorkOnAnInvariantSum", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (4,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (4,8) strides (8,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL global float32* slot 2
%6 = VIEW void view[shape (4,8) strides (0,1) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = REDUCE_AXIS float32 (%4) ADD axes (1)
%9 = REDUCE_AXIS float32 (%7) ADD axes (1)
%10 = EXP2 float32 (%9)
%11 = ADD float32 (%8, %10)
%12 = STORE void (%0, %1, %11)
%13 = SINK void (%12))"},

    // Of the unrolled rows some lie in the padding, whatever the column.
    {"MaximaOfPaddedRows", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (1,1,4) strides (0,0,1) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (2,4,4) strides (8,4,1) offset 0 mask (0:2,0:2,0:4)]
%4 = LOAD int32 (%2, %3)
%5 = REDUCE_AXIS int32 (%4) MAX axes (0,1)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    // The rows' maxima and sums: two reductions in one loop.
    {"TwoReductions", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (10,1) strides (1,0) offset 0]
%2 = DEFINE_GLOBAL global float32* slot 1
%3 = VIEW void view[shape (10,20) strides (20,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = REDUCE_AXIS float32 (%4) MAX axes (1)
%6 = REDUCE_AXIS float32 (%4) ADD axes (1)
%7 = NEG float32 (%5)
%8 = ADD float32 (%6, %7)
%9 = STORE void (%0, %1, %8)
%10 = SINK void (%9))"},

    // Texels of half floats, a border of zeros around them, written to texels of floats.
    {"PaddedHalfImage", R"(
%0 = DEFINE_GLOBAL image(6,3,4) float32 slot 0
%1 = VIEW void view[shape (6,3,4) strides (12,4,1) offset 0]
%2 = DEFINE_GLOBAL image(4,3,4) float16 slot 1
%3 = VIEW void view[shape (6,3,4) strides (12,4,1) offset -12 mask (1:5,0:3,0:4)]
%4 = LOAD float32 (%2, %3)
%5 = MUL float32 (%4, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))",
     true},

    // Summed as float32, stored as float16.
    {"ImageMatmul", R"(
%0 = DEFINE_GLOBAL image(5,2,4) float16 slot 0
%1 = VIEW void view[shape (5,8,1) strides (8,1,0) offset 0]
%2 = DEFINE_GLOBAL image(5,3,4) float16 slot 1
%3 = VIEW void view[shape (5,8,12) strides (12,0,1) offset 0]
%4 = LOAD float32 (%2, %3)
%5 = DEFINE_GLOBAL image(12,2,4) float32 slot 2
%6 = VIEW void view[shape (5,8,12) strides (0,1,8) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (2)
%10 = STORE void (%0, %1, %9)
%11 = SINK void (%10))"},

    {"ImageInPlace", R"(
%0 = DEFINE_GLOBAL image(3,4,4) float16 slot 0
%1 = VIEW void view[shape (3,16) strides (16,1) offset 0]
%2 = LOAD float32 (%0, %1)
%3 = CONST float32 3.0
%4 = MUL float32 (%2, %3)
%5 = ASSIGN float32 (%0, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    // Sums over axis 1 of maxima over axis 2.
    {"ReductionOfAReduction", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (6,1,1) strides (1,0,0) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (6,8,12) strides (96,12,1) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = REDUCE_AXIS int32 (%4) MAX axes (2)
%6 = REDUCE_AXIS int32 (%5) ADD axes (1)
%7 = STORE void (%0, %1, %6)
%8 = SINK void (%7))"},

    // What is overwritten is also what every term has a factor of.
    {"InPlaceSum", R"(
%0 = DEFINE_GLOBAL global float32* slot 0
%1 = VIEW void view[shape (5,1) strides (1,0) offset 0]
%2 = LOAD float32 (%0, %1)
%3 = VIEW void view[shape (5,16) strides (1,0) offset 0]
%4 = LOAD float32 (%0, %3)
%5 = DEFINE_GLOBAL global float32* slot 1
%6 = VIEW void view[shape (5,16) strides (16,1) offset 0]
%7 = LOAD float32 (%5, %6)
%8 = MUL float32 (%4, %7)
%9 = REDUCE_AXIS float32 (%8) ADD axes (1)
%10 = ADD float32 (%9, %2)
%11 = STORE void (%0, %1, %10)
%12 = SINK void (%11))"},

    // More axes than a launch has dimensions.
    {"PermutedAxes", R"(
%0 = DEFINE_GLOBAL global int32* slot 0
%1 = VIEW void view[shape (3,4,5,2,6) strides (240,60,12,6,1) offset 0]
%2 = DEFINE_GLOBAL global int32* slot 1
%3 = VIEW void view[shape (3,4,5,2,6) strides (1,3,72,360,12) offset 0]
%4 = LOAD int32 (%2, %3)
%5 = ADD int32 (%4, %4)
%6 = STORE void (%0, %1, %5)
%7 = SINK void (%6))"},

    // What is reduced is a condition on the place alone; in some rows it is the same all along.
    {"SumsOfPlaces", R"(
%0 = DEFINE_GLOBAL global int64* slot 0
%1 = VIEW void view[shape (8,1) strides (1,0) offset 0]
%2 = VIEW void view[shape (8,8) strides (0,0) offset 0 mask (1:7,2:8)]
%3 = VALID bool (%2)
%4 = CONST int64 3
%5 = CONST int64 5
%6 = WHERE int64 (%3, %4, %5)
%7 = REDUCE_AXIS int64 (%6) ADD axes (1)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8))"},

    {"ProductsOfPlaces", R"(
%0 = DEFINE_GLOBAL global int64* slot 0
%1 = VIEW void view[shape (8,1) strides (1,0) offset 0]
%2 = VIEW void view[shape (8,8) strides (0,0) offset 0 mask (1:7,2:8)]
%3 = VALID bool (%2)
%4 = CONST int64 3
%5 = CONST int64 5
%6 = WHERE int64 (%3, %4, %5)
%7 = REDUCE_AXIS int64 (%6) MUL axes (1)
%8 = STORE void (%0, %1, %7)
%9 = SINK void (%8))"},
};

}  // namespace beamd::testing
