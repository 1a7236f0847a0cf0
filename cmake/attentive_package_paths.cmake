# Refuses to pack a file that names a folder of the machine that made it: LibTorch's, or that of the sources or of
# the build. CPack runs it in the folder that it packs (cmake/AttentivePackage.cmake):
#   CPACK_TEMPORARY_INSTALL_DIRECTORY   the folder
#   CPACK_ATTENTIVE_PATHS               what no file may name
#   CPACK_ATTENTIVE_STRICT              whether that holds for libraries too; if not, it is a warning

set(words "")
foreach(path IN LISTS CPACK_ATTENTIVE_PATHS)
  if(path)
    list(APPEND words -e "${path}")
  endif()
endforeach()
execute_process(COMMAND grep -rlF ${words} "${CPACK_TEMPORARY_INSTALL_DIRECTORY}"
                OUTPUT_VARIABLE found RESULT_VARIABLE status ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status MATCHES "^[01]$") # 1: no file does
  message(FATAL_ERROR " attentive: cannot search ${CPACK_TEMPORARY_INSTALL_DIRECTORY}: ${error}")
endif()
string(REPLACE "\n" ";" found "${found}")
list(TRANSFORM found REPLACE "^.*/" "")
set(libraries "${found}")
list(FILTER found EXCLUDE REGEX "\\.(a|so[0-9.]*)$")
list(FILTER libraries INCLUDE REGEX "\\.(a|so[0-9.]*)$")
if(CPACK_ATTENTIVE_STRICT)
  list(APPEND found ${libraries})
  set(libraries "")
endif()
list(JOIN CPACK_ATTENTIVE_PATHS ", " paths)
if(found)
  list(JOIN found ", " found)
  message(FATAL_ERROR " attentive: a package must not name ${paths}, but these files do: ${found}")
elseif(libraries)
  list(JOIN libraries ", " libraries)
  message(WARNING " attentive: this package is for this machine: ${libraries} name ${paths}; tools/package makes one for others")
endif()
