"""Writes conversations.jsonl, the data set of this example: python3 make_conversations.py

Eleven kinds of chats, four of each, written for this repository (Apache-2.0). Every
chat says something early that a later turn asks for, so a server that loses the
history cannot answer it. Think times are drawn with a fixed seed from an exponential
distribution; random.random() gives the same numbers on every version of Python.
"""

import json
import math
import random
from pathlib import Path

SEED = 20261201


def ask(text, max_tokens=16, on=()):
    return {"text": text, "max_tokens": max_tokens, "depends_on": list(on)}


def names(name, town, job, pet):
    return None, [
        ask(f"Hello! My name is {name}, I live in {town} and I work as a {job}. Please greet me in one short sentence."),
        ask("Tell me one thing that people in my line of work do every day.", 24, [0]),
        ask(f"I also have a {pet}. Suggest a name for it."),
        ask("What is my name, and where do I live?", 16, [0]),
    ]


def shopping(shop, first, second, third, guests):
    return "You keep shopping lists. Answer briefly.", [
        ask(f"I am going to the {shop} this afternoon. Please start a shopping list with {first} and {second}."),
        ask(f"Add {third} to the list.", 16, [0]),
        ask(f"There will be {guests} guests tonight. Is the list enough for a small dinner?", 24, [0, 1]),
        ask("Write the whole list once more, with commas between the items.", 24, [0, 1]),
        ask("Which item did I ask you to add after the first two?", 12, [1]),
    ]


def story(animal, name, place, wish):
    return "You tell stories for children, one sentence at a time.", [
        ask(f"Begin a story about a {animal} called {name} who lives {place} and wants to {wish}. One sentence, please.", 24),
        ask("What happens next?", 24, [0]),
        ask("Now let it rain.", 24, [0, 1]),
        ask("Which animal is the story about, and what is its name?", 12, [0]),
        ask("End the story with one sentence.", 24, [0, 1, 2]),
    ]


def function(verb, thing, old, new):
    return "You are a programmer who writes short Python functions.", [
        ask(f"Write a Python function called `{old}` that returns the {verb} of {thing}. Only the code, without an explanation.", 32),
        ask(f"Rename the function to `{new}` and show me its first line.", 16, [0]),
        ask("What was the name of the function before I asked you to rename it?", 12, [0, 1]),
    ]


def journey(town, country, days, month, transport):
    return None, [
        ask(f"I am planning a journey of {days} days to {town} in {country}, by {transport}, in {month}. What should I pack?", 24),
        ask("What could I do there if it rains?", 24, [0]),
        ask("How many days did I say that I would stay?", 12, [0]),
        ask("In which month do I travel?", 12, [0]),
    ]


def recipe(dish, main, second, minutes, diet):
    return "You are a helpful cook who answers briefly.", [
        ask(f"I want to cook {dish} with {main} and {second}. It must not take longer than {minutes} minutes. How do I begin?", 24),
        ask(f"One of my guests is {diet}. What do I have to change?", 24, [0]),
        ask("And what do I do after that?", 24, [0, 1]),
        ask("How many minutes did I say that I have?", 12, [0]),
        ask("Name the dish that we are talking about.", 12, [0]),
    ]


def numbers(first, second, name, colour):
    return None, [
        ask(f"Please remember two things for me: the number {first}, and that the favourite colour of my friend {name} is {colour}."),
        ask(f"Remember one more number, {second}."),
        ask("Which two numbers did I ask you to remember?", 16, [0, 1]),
        ask("What is the favourite colour of my friend?", 12, [0]),
        ask("Which of the two numbers came first?", 12, [0, 1]),
        ask("And what is my friend called?", 12, [0]),
    ]


def lesson(word, meaning, language, sentence):
    return "You are a patient language teacher.", [
        ask(f"I am learning {language}. Today I learned the word “{word}”, which means “{meaning}”. Use it in an easy sentence.", 24),
        ask(f"Here is my own sentence: {sentence} Was that right?", 24, [0]),
        ask("Which language am I learning?", 12, [0]),
        ask("What does the word that I learned today mean?", 12, [0]),
    ]


def meeting(topic, day, hour, room, person):
    return "You are an assistant who keeps the minutes. Answer briefly.", [
        ask(f"We meet on {day} at {hour} in {room} to talk about {topic}. {person} cannot come. Please note that."),
        ask("Write a short invitation.", 32, [0]),
        ask("Who cannot come?", 12, [0]),
        ask("The meeting moves one hour later. When does it begin now?", 16, [0]),
        ask("In which room do we meet?", 12, [0]),
    ]


def comparison(first, second, criterion):
    return None, [
        ask(f"I cannot decide between {first} and {second}. What matters most to me is {criterion}. Give me one argument for each.", 32),
        ask("Which one would you choose, given what matters to me?", 24, [0]),
        ask("What did I say matters most to me?", 12, [0]),
    ]


def riddle(thing, clue, other):
    return "You play a guessing game with the user.", [
        ask(f"I am thinking of something. First clue: {clue}. Do not guess yet, just say that you are ready."),
        ask(f"Second clue: it is not {other}. What could it be?", 16, [0]),
        ask("What was my first clue?", 16, [0]),
        ask(f"It is {thing}! Does that fit both of my clues?", 16, [0, 1]),
    ]


KINDS = {
    "names": (names, [
        ("Ada", "Lisbon", "carpenter", "grey cat"), ("Bruno", "Oslo", "teacher", "small dog"),
        ("Chioma", "Lagos", "nurse", "green parrot"), ("Daiki", "Kyoto", "baker", "white rabbit")]),
    "shopping": (shopping, [
        ("market", "tomatoes", "bread", "olive oil", "four"), ("bakery", "rolls", "butter", "plum jam", "three"),
        ("corner shop", "rice", "onions", "lentils", "five"), ("harbour", "salmon", "lemons", "fresh dill", "six")]),
    "story": (story, [
        ("fox", "Rusty", "behind an old mill", "see the sea"), ("owl", "Minna", "in a church tower", "learn to sing"),
        ("donkey", "Pablo", "on a windy hill", "win a race"), ("hedgehog", "Tilda", "under a garden shed", "find a friend")]),
    "function": (function, [
        ("sum", "a list of numbers", "add_all", "total"), ("length", "a word", "count_letters", "word_length"),
        ("largest element", "a list", "biggest", "maximum"), ("square", "a number", "power_two", "squared")]),
    "journey": (journey, [
        ("Bergen", "Norway", "nine", "October", "train"), ("Porto", "Portugal", "four", "May", "plane"),
        ("Hanoi", "Vietnam", "twelve", "February", "bus"), ("Quebec", "Canada", "seven", "July", "car")]),
    "recipe": (recipe, [
        ("a soup", "carrots", "ginger", "twenty", "a vegetarian"), ("a curry", "chickpeas", "spinach", "forty", "allergic to nuts"),
        ("an omelette", "mushrooms", "cheese", "fifteen", "allergic to milk"), ("a stew", "beef", "potatoes", "ninety", "a vegan")]),
    "numbers": (numbers, [
        ("417", "86", "Elena", "dark green"), ("52", "903", "Farid", "orange"),
        ("768", "15", "Greta", "violet"), ("29", "640", "Hugo", "light blue")]),
    "lesson": (lesson, [
        ("libro", "book", "Spanish", "“El libro es rojo.”"), ("Brücke", "bridge", "German", "“Die Brücke ist alt.”"),
        ("fenêtre", "window", "French", "“La fenêtre est ouverte.”"), ("albero", "tree", "Italian", "“L'albero è alto.”")]),
    "meeting": (meeting, [
        ("the new library", "Tuesday", "nine o'clock", "room 12", "Ivana"), ("the summer festival", "Friday", "two o'clock", "the town hall", "Jonas"),
        ("the school garden", "Monday", "four o'clock", "the gym", "Keiko"), ("the bus timetable", "Thursday", "ten o'clock", "room 7", "Luis")]),
    "comparison": (comparison, [
        ("a bicycle", "a scooter", "that it is quiet"), ("a laptop", "a tablet", "a long battery life"),
        ("a house plant", "a fish tank", "that it needs little care"), ("a piano", "a guitar", "that I can carry it")]),
    "riddle": (riddle, [
        ("a lighthouse", "it stands by the sea and shines at night", "a star"), ("a clock", "it has hands but cannot clap", "a person"),
        ("a river", "it runs all day and never gets tired", "an athlete"), ("a book", "it has a spine but no bones", "an animal")]),
}


def main():
    rng = random.Random(SEED)
    lines = []
    # One of each kind after the other, so that the first few are of all kinds.
    for variant in range(4):
        for kind, (make, variants) in KINDS.items():
            system, asked = make(*variants[variant])
            turns = [{"role": "system", "text": system}] if system else []
            for n, turn in enumerate(asked):
                if n > 0:
                    turns.append({"role": "assistant"})
                    turn["think_ms"] = 200 + round(-800 * math.log(1 - rng.random()))
                turns.append({"role": "user", **{k: v for k, v in turn.items() if v != []}})
            lines.append({"id": f"{kind}-{variant + 1}", "turns": turns})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    Path(__file__).with_name("conversations.jsonl").write_text(text, "utf-8", newline="\n")


main()
