/** Colours and fonts that all pages and the dashboard share. Contrasts are at least 4.5 for text and 3 for edges of controls. */
export const TOKENS = `
:root {
  color-scheme: light dark;
  --paper: light-dark(#ffffff, #14171c); --raised: light-dark(#f7f8fa, #191d23); --sunken: light-dark(#eef1f5, #222831);
  --text: light-dark(#1f2630, #dde3ea); --soft: light-dark(#566171, #a3aebc);
  --line: light-dark(#d9dee5, #2c333c); --edge: light-dark(#7f8a98, #6f7b8a);
  --accent: light-dark(#0b62c4, #6cb2ff); --on-accent: light-dark(#ffffff, #0b1420); --mark: light-dark(#fff3c4, #4a3f12);
  --ok: light-dark(#0b6b3a, #57c98b); --ok-ground: light-dark(#e7f5ed, #16301f);
  --warn: light-dark(#8a5300, #e8b45a); --warn-ground: light-dark(#fdf3e1, #352a14);
  --bad: light-dark(#b3261e, #ff8a80); --bad-ground: light-dark(#fdecea, #3a1f1e);
  --chart-1: light-dark(#2f6fb5, #6cb2ff); --chart-2: light-dark(#b8500f, #f2994a); --chart-3: light-dark(#7a4bb0, #b794f4);
  --chart-4: light-dark(#0f766e, #4fd1c5); --chart-5: light-dark(#a1325f, #f687b3); --chart-6: light-dark(#6b7280, #a3aebc);
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
:root[data-theme=light] { color-scheme: light }
:root[data-theme=dark] { color-scheme: dark }
`
