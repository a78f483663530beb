/**
 * Turns any text into a header's value. Visible ASCII and blanks stay; in a text with other characters, these and each `%`
 * are percent-encoded, so that it is one line and `decodeURIComponent` restores it.
 */
export const headerText = (text: string): string =>
  /^[\x20-\x7e]*$/.test(text) ? text : text.replace(/[^\x20-\x24\x26-\x7e]/gu, encodeURIComponent)
