"""Plans of trainings into a deadline, from what one record measured."""
