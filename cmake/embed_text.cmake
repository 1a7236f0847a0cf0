# Writes the texts of the files INPUTS (separated by |) to OUTPUT as the C++ string NAMESPACE::NAME.
string(REPLACE "|" ";" inputs "${INPUTS}")
set(literals "")
foreach(input IN LISTS inputs)
  file(READ "${input}" text)
  string(APPEND literals "\n    R\"embedded(${text})embedded\"")
endforeach()
file(WRITE "${OUTPUT}" "namespace ${NAMESPACE} {\nextern const char* const ${NAME};\nconst char* const ${NAME} =${literals};\n}  // namespace ${NAMESPACE}\n")
