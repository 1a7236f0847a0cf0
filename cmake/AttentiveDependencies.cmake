# fmt and nlohmann_json are private to the library, CLI11 to the apps, Catch2 to the tests.
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
if(ATTENTIVE_BUILD_APPS)
  find_package(CLI11 2.1 REQUIRED)
endif()
if(ATTENTIVE_BUILD_TESTS)
  find_package(Catch2 3 REQUIRED)
endif()
