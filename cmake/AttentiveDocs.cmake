# Target docs: the API reference, made by Doxygen from the public headers. It fails on a warning.

find_program(ATTENTIVE_DOXYGEN NAMES doxygen DOC "Doxygen, for the target docs")
find_file(ATTENTIVE_DOXYGEN_STYLE NAMES doxygen-awesome.css PATHS /usr/share PATH_SUFFIXES doxygen-awesome-css
          DOC "The style sheet doxygen-awesome.css, for the target docs")
mark_as_advanced(ATTENTIVE_DOXYGEN ATTENTIVE_DOXYGEN_STYLE)
attentive_find_python(_python)

if(ATTENTIVE_DOXYGEN AND ATTENTIVE_DOXYGEN_STYLE AND _python)
  configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${PROJECT_BINARY_DIR}/Doxyfile" @ONLY)
  add_custom_target(docs
    COMMAND "${CMAKE_COMMAND}" -E rm -rf "${PROJECT_BINARY_DIR}/docs/html"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/docs"
    COMMAND "${ATTENTIVE_DOXYGEN}" "${PROJECT_BINARY_DIR}/Doxyfile"
    COMMAND "${CMAKE_COMMAND}" -E echo "${PROJECT_BINARY_DIR}/docs/html/index.html"
    COMMENT "API reference"
    VERBATIM)
else()
  add_custom_target(docs
    COMMAND "${CMAKE_COMMAND}" -E echo "attentive: the API reference needs Doxygen and its style sheet: apt-get install doxygen doxygen-awesome-css, then configure again"
    COMMAND "${CMAKE_COMMAND}" -E false
    VERBATIM)
endif()
