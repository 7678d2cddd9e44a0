from pairmark.service.cli import main

main()
