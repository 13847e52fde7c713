// What forges make of a heading: the site and the link checker use the same.
export const anchor = heading =>
  heading.trim().toLowerCase().replace(/[^\p{L}\p{N}\- _]/gu, '').replaceAll(' ', '-')
