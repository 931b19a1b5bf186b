PAGES: tuple[str, ...] = ()
