// The site: the pages of docs/ as they are. hack/docs.sh sets the environment.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import path from 'node:path'
import { anchor } from '../anchor.mjs'

const tools = path.dirname(import.meta.dirname)
const source = path.join(tools, 'pages') // a copy of docs/
const {
  DOCS_OUT: out, // where the site is written
  DOCS_BASE: base = '/', // the path of the site on its host; it ends with a slash
  DOCS_VERSION: version, // of the pages
  DOCS_VERSIONS: versions = '', // all that the site has, separated by spaces: name=path
} = process.env

const repository = 'https://github.com/multicidr/controller-manager'

// page is what the front matter or the first heading of a file says.
function page(file) {
  const text = readFileSync(file, 'utf8')
  const matter = /^---\n([^]*?)\n---\n/.exec(text)?.[1] ?? ''
  const of = key => new RegExp(`^${key}: *["']?(.*?)["']?$`, 'm').exec(matter)?.[1]
  return {
    title: of('title') ?? /^# +(.+)$/m.exec(text)?.[1].replaceAll('`', '') ?? path.basename(file, '.md'),
    weight: Number(of('weight') ?? 50),
  }
}

// order is that of the folders; others follow.
const order = ['install', 'use', 'operate', 'concepts', 'cluster-ipam', 'reference', 'engineering']

// listed are the pages of a folder by weight and title, and its folders with those that are in them.
function listed(folder) {
  const items = readdirSync(path.join(source, folder)).flatMap(name => {
    const at = path.join(folder, name)
    const file = path.join(source, at)
    if (statSync(file).isDirectory()) {
      const items = listed(at)
      if (items.length === 0) return []
      const readme = path.join(file, 'README.md')
      const own = existsSync(readme) ? page(readme) : { title: name[0].toUpperCase() + name.slice(1).replaceAll('-', ' ') }
      const weight = order.includes(name) ? order.indexOf(name) : own.weight ?? order.length
      return [{ text: own.title, weight, link: existsSync(readme) ? `/${at}/` : undefined, items, collapsed: false }]
    }
    if (!name.endsWith('.md') || name === 'README.md') return []
    const { title, weight } = page(file)
    return [{ text: title, weight, link: '/' + at.replace(/\.md$/, '') }]
  })
  return items.sort((a, b) => a.weight - b.weight || a.text.localeCompare(b.text))
}

// sidebar has the pages that are in no folder first.
function sidebar() {
  const all = listed('')
  return [{ text: 'Start', link: '/', items: all.filter(item => !item.items) }, ...all.filter(item => item.items)]
}

// linkOf is where a link of a page leads on the site. What is no page is in the repository.
function linkOf(href, from) {
  if (/^(?:[a-z][a-z+.-]*:|\/|#)/i.test(href)) return href
  const [target, fragment] = href.split('#')
  const at = path.relative(source, path.resolve(source, path.dirname(from), decodeURI(target)))
  const suffix = fragment ? '#' + fragment : ''
  if (!at.startsWith('..') && at.endsWith('.md')) return '/' + at.replace(/(^|\/)README\.md$/, '$1') + suffix
  if (!at.startsWith('..') && existsSync(path.join(source, at, 'README.md'))) return `/${at}/${suffix}`
  const inRepository = path.join('docs', at)
  return `${repository}/${path.extname(at) === '' ? 'tree' : 'blob'}/${version}/${inRepository}${suffix}`
}

// asText keeps {{ }} of Helm and Prometheus from being read as a part of a template.
function asText(md) {
  for (const kind of ['text', 'code_inline']) {
    const render = md.renderer.rules[kind]
    md.renderer.rules[kind] = (...args) => render(...args).replaceAll('{{', '&#123;&#123;')
  }
}

// diagrams lets the reader's browser draw what forges draw, too.
function diagrams(md) {
  const { fence } = md.renderer.rules
  md.renderer.rules.fence = (tokens, i, ...args) => tokens[i].info.trim() === 'mermaid'
    ? `<Diagram source="${encodeURIComponent(tokens[i].content)}" />`
    : fence(tokens, i, ...args)
}

function resolveLinks(md) {
  md.core.ruler.push('links-of-the-site', state => {
    for (const { children } of state.tokens) {
      for (const token of children ?? []) {
        if (token.type === 'link_open') token.attrSet('href', linkOf(token.attrGet('href'), state.env.relativePath))
      }
    }
  })
}

export default {
  title: 'multicidr',
  description: 'More than one Pod range for a Kubernetes cluster',
  lang: 'en',
  srcDir: source,
  outDir: out,
  base,
  head: [['link', { rel: 'icon', href: base + 'icon.svg' }]],
  lastUpdated: false,
  rewrites: id => id.replace(/(^|\/)README\.md$/, '$1index.md'),
  markdown: {
    anchor: { slugify: anchor },
    config: md => md.use(asText).use(diagrams).use(resolveLinks),
  },
  vite: {
    publicDir: path.join(tools, 'public'),
    build: { chunkSizeWarningLimit: 4096 },
  },
  themeConfig: {
    logo: '/icon.svg',
    nav: [{ component: 'VersionMenu' }],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/docs/:path` },
    version,
    versions: versions.split(' ').filter(Boolean).map(v => v.split('=')).map(([name, link]) => ({ name, link })),
  },
}
