import DefaultTheme from 'vitepress/theme'
import Diagram from './Diagram.vue'
import VersionMenu from './VersionMenu.vue'
import './style.css'

export default {
  extends: DefaultTheme,
  enhanceApp: ({ app }) => app.component('VersionMenu', VersionMenu).component('Diagram', Diagram),
}
