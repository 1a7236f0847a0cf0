// Ends the vector code of one instruction set in a source that has several: the headers may be included
// again.

#undef ATTENTIVE_SIMD_NAMESPACE
#undef ATTENTIVE_SIMD_WIDTH
#undef ATTENTIVE_SCORE_VECTOR_H
#undef ATTENTIVE_SCORE_MATH_H
#undef ATTENTIVE_SCORE_FUNCTIONS_H
#undef ATTENTIVE_SCORE_LANES_H
#undef ATTENTIVE_SCORE_LANE_FUNCTIONS_H
#undef ATTENTIVE_SCORE_PLACES_H
#undef ATTENTIVE_SCORE_LOOKUPS_H
#undef ATTENTIVE_SCORE_ROWS_H
