"""The paper's studies, each by one command: its methods, its scaling, and a page of both."""
