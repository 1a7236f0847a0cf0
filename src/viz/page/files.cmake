# The parts of the page in the order in which write_html joins them: all styles in one <style>, all scripts in one <script>.
set(attentive_viz_styles page.css)
set(attentive_viz_scripts page.js)
