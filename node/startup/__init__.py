"""What happens before a node serves: finding the others (`discovery`), and the first start of a cluster (`bootstrap`)..


"""
