/** The icon of all pages: a gate that is half open. */
export const FAVICON = {
  path: '/favicon.svg',
  text: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b62c4"/><path d="M8 25V10m0 3 17-5" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/><path d="M13 25h11" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round" opacity=".6"/></svg>`,
}
