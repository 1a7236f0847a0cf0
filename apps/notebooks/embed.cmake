# Writes the text of INPUT as a C++ string into OUTPUT, so that an installed app needs no data file beside it.
file(READ "${INPUT}" text)
file(WRITE "${OUTPUT}" "namespace notebooks {\nextern const char* const kExpectedJson;\nconst char* const kExpectedJson = R\"json(${text})json\";\n}  // namespace notebooks\n")
