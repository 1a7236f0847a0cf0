# Writes the text of INPUT as the C++ string notebooks::NAME into OUTPUT, so that an installed app needs no file beside it.
file(READ "${INPUT}" text)
file(WRITE "${OUTPUT}" "namespace notebooks {\nextern const char* const ${NAME};\nconst char* const ${NAME} = R\"embedded(${text})embedded\";\n}  // namespace notebooks\n")
