"""HTML pages as tests read them."""

import base64
import collections
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser


class Page(HTMLParser):
    """The tags of a page, the texts of its elements by their tag, and what its pictures hold."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.pictures, self.open, self.texts = [], [], [], collections.defaultdict(list)
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "img":
            kind, _, content = dict(attributes)["src"].partition(",")
            assert kind == "data:image/svg+xml;base64"
            self.pictures.append(ElementTree.fromstring(base64.b64decode(content)))
        self.texts[tag].append("")
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, text):
        for tag in self.open:
            self.texts[tag][-1] += text
