"""`python -m zhin_host`: the command line."""

from zhin_host.cli import main

if __name__ == "__main__":
    main(prog_name="zhin-host")
