(function () {
  'use strict';
  const data = JSON.parse(document.getElementById('attentive-data').textContent);
  document.getElementById('title').textContent = data.title;
  for (const view of data.views) {
    const line = document.createElement('p');
    line.textContent = view.path + ': ' + view.heads.length + ' heads, ' + view.queries + ' x ' + view.keys;
    document.getElementById('list').appendChild(line);
  }
})();
