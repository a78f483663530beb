const PATHS = {
  overview: 'M3 13h4v7H3zM10 4h4v16h-4zM17 9h4v11h-4z',
  key: 'M14.5 3a6.5 6.5 0 0 0-6.2 8.4L3 16.7V21h4.3v-2.6H10V16l1.6-1.6A6.5 6.5 0 1 0 14.5 3zm2 4.5h.01',
  identity: 'M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4 20c1-4 4-5 8-5s7 1 8 5',
  role: 'M12 3 5 6v5c0 5 3 8 7 10 4-2 7-5 7-10V6z',
  audit: 'M5 4h14v16H5zM9 9h6M9 13h6M9 17h3',
  rootKey: 'M8 11V7a4 4 0 0 1 8 0v4M5 11h14v9H5zM12 14v3',
  imports: 'M12 4v10m-4-4 4 4 4-4M4 14v6h16v-6',
  server: 'M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01',
  workspace: 'M4 9h16v11H4zM8 9V5h8v4M4 14h16',
  limits: 'M4 18a9 9 0 1 1 16 0M12 14l4-5M12 14h.01',
  live: 'M3 12h4l3-8 4 16 3-8h4',
  why: 'M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.1M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 5v14l12-7z',
  eye: 'M2 12s4-7 10-7 10 7 10 7-4 7-10 7-10-7-10-7zM12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6z',
  box: 'M4 8l8-4 8 4v8l-8 4-8-4zM4 8l8 4 8-4M12 12v8',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5',
  rotate: 'M20 12a8 8 0 1 1-2.5-5.8M20 3v5h-5',
  off: 'M12 3v9M7 6.5a8 8 0 1 0 10 0',
  docs: 'M5 4h10l4 4v12H5zM15 4v4h4M9 12h6M9 16h6',
  menu: 'M4 7h16M4 12h16M4 17h16',
  check: 'm5 12.5 4.5 4.5L19 7.5',
  cross: 'm6 6 12 12M18 6 6 18',
  warning: 'M12 4 2.8 20h18.4zM12 10v4.5M12 17.2v.1',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  download: 'M12 4v11m-4.5-4.5L12 15l4.5-4.5M5 20h14',
  plus: 'M12 5v14M5 12h14',
  signOut: 'M14 4H5v16h9M10 12h11m-4-4 4 4-4 4',
  theme: 'M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9z',
  keyboard: 'M3 7h18v11H3zM7 11h.01M11 11h.01M15 11h.01M8 15h8',
  search: 'M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 21 21',
  refresh: 'M20 5v5h-5M4 19v-5h5M19 10a8 8 0 0 0-14-2M5 14a8 8 0 0 0 14 2',
  down: 'm6 9 6 6 6-6',
  more: 'M5 12h.01M12 12h.01M19 12h.01',
} as const

export type IconName = keyof typeof PATHS

/** Always beside words, so readers of screens skip it. */
export const Icon = ({ name }: { name: IconName }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={PATHS[name]} />
  </svg>
)
