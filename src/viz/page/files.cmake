# The parts of the page in the order in which write_html joins them: all styles in one <style>, all scripts in
# one <script>.
set(attentive_viz_styles page.css)
set(attentive_viz_scripts
  data.js
  state.js
  surface.js
  controls.js
  heads_view.js
  grid_view.js
  map_view.js
  image_view.js
  neurons_view.js
  numbers_view.js
  shell.js)
