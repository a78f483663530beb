/**
 * Any text as the value of a header. Visible ASCII and blanks are sent as they are; of a text that has anything else, that
 * and each `%` is percent-encoded, so that it stays one line and `decodeURIComponent` gives back what it was.
 */
export const headerText = (text: string): string =>
  /^[\x20-\x7e]*$/.test(text) ? text : text.replace(/[^\x20-\x24\x26-\x7e]/gu, encodeURIComponent)
