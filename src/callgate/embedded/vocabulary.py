"""Words that decoding knows: those that are no values, and choices in other languages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["CURRENCIES", "ENGLISH", "STOP_WORDS", "TRANSLATIONS"]

_STOP = """
a an the this that these those some any all each every both either another other such same own my your our his her its
their mine yours i me we us you he him she it they them who whom whose which what when where why how is are was were
be been being am do does did done doing have has had having will would shall should can could may might must ought not
no nor yes ok okay hi hello hey thanks thank please kindly and or but if then else so than too very also just only now
again there here to for from of in on at by with about into onto as up out over off down via per through between after
before until till since during want wants wanted need needs needed like i'd i'll i'm i've it's let's don't can't
that's what's let give gives get gets got make makes made put puts set show tell know see find look check help try use
using go goes going come bring take takes keep add new one ones thing things something anything somebody someone
anyone everything still yet already soon later while because bitte ich mir mich du sie wir ihr der die das den dem des
ein eine einen einem einer und oder für von zu mit auf im um ist sind war mein meine dein kannst könnten möchte
brauche le la les un une de et ou pour avec sur dans est je tu il nous vous mon ma mes s'il plaît el los las y o para
con en es mi por favor lo gli
"""
STOP_WORDS = frozenset(_STOP.split())
"""Words that give no value by themselves."""

_FUNCTION_WORDS = "the of and is are what who where when how which with for from my me i you your please this that it's to"
ENGLISH = frozenset(_FUNCTION_WORDS.split())
"""Words by which an English sentence is recognised."""

CURRENCIES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "EUR": ("euro", "euros", "€"), "USD": ("dollar", "dollars", "$", "bucks"), "GBP": ("pound", "pounds", "£", "sterling"),
    "JPY": ("yen", "¥"), "CHF": ("franc", "francs", "franken"), "SEK": ("krona", "kronor"), "PLN": ("zloty", "zlotys"),
    "INR": ("rupee", "rupees", "₹"), "CNY": ("yuan", "renminbi"), "DKK": ("kroner",), "CZK": ("koruna",),
    "CAD": ("canadian dollar", "canadian dollars"), "AUD": ("australian dollar", "australian dollars"),
    "NZD": ("new zealand dollar", "new zealand dollars"), "HKD": ("hong kong dollar", "hong kong dollars"),
    "SGD": ("singapore dollar", "singapore dollars"), "MXN": ("mexican peso", "mexican pesos"),
    "ZAR": ("rand",), "TRY": ("lira",), "NOK": ("norwegian kroner",),
})  # fmt: skip
"""A currency's code -> the words for it."""

_ROWS = """
red: rot rote roten rouge rojo roja rosso crimson
green: grün grüne grünen vert verte verde
blue: blau blaue blauen bleu bleue azul blu
yellow: gelb gelbe jaune amarillo giallo
white: weiß weiße blanc blanche blanco bianco
black: schwarz schwarze noir noire negro nero
small: klein kleine kleinen kleines petit petite pequeño pequeña piccolo piccola little tiny
medium: mittel mittlere moyen moyenne mediano medio
large: groß große großen grosses grand grande big
low: niedrig niedrige bas basse bajo baja basso minor
high: hoch hohe hohen haut haute élevé alto alta
normal: normale regular standard ordinary
urgent: dringend eilig urgente asap
critical: kritisch critique crítico critico
hot: heiß heiße chaud chaude caliente caldo
cold: kalt kalte froid froide frío fría freddo
warm: lauwarm tiède tibio tiepido
on: an einschalten ein allumer encender accendere
off: aus ausschalten éteindre apagar spegnere
open: öffnen offen ouvrir ouvert abrir abierto aprire aperto
closed: geschlossen schließen fermer fermé cerrar cerrado chiuso
close: schließen fermer cerrar chiudere
left: links gauche izquierda sinistra
right: rechts droite derecha destra
up: hoch rauf haut arriba su
down: runter bas abajo giù
fast: schnell schnelle rapide rápido veloce quick quickly
slow: langsam lent lento slowly
dry: trocken sec sèche seco asciutto
wet: nass feucht mouillé mojado bagnato umido
weekly: wöchentlich hebdomadaire semanal settimanale
daily: täglich quotidien diario giornaliero
monthly: monatlich mensuel mensual mensile
yearly: jährlich annuel anual annuale annually
morning: morgens vormittag matin mañana mattina
afternoon: nachmittag nachmittags après-midi tarde pomeriggio
evening: abend abends soir noche sera
night: nacht nachts nuit noche notte
adult: erwachsener erwachsene adulte adulto grown-up
child: kind kinder enfant niño niña bambino kid
student: studierende étudiant estudiante studente
senior: rentner pensioner retiree
one way: einfach einfache aller-simple ida
return: rückfahrt hin-und-rückfahrt aller-retour vuelta
vegetarian: vegetarisch végétarien vegetariano veggie
vegan: vegane végétalien vegano
cash: bar bargeld espèces efectivo contanti
card: karte carte tarjeta carta
celsius: centigrade °c
fahrenheit: °f
kilometers: km kilometer kilometres kilomètres kilómetros chilometri
miles: meilen mi milles millas miglia
metric: metrisch métrique métrico
imperial: us
english: englisch anglais inglés inglese
german: deutsch allemand alemán tedesco
french: französisch français francés francese
spanish: spanisch espagnol español spagnolo
italian: italienisch italien italiano
bread: brot pain pan pane
milk: milch lait leche latte
oak: eiche chêne roble quercia
monday: montag lundi lunes lunedì
tuesday: dienstag mardi martes martedì
wednesday: mittwoch mercredi miércoles mercoledì
thursday: donnerstag jeudi jueves giovedì
friday: freitag vendredi viernes venerdì
saturday: samstag samedi sábado sabato
sunday: sonntag dimanche domingo domenica
spring: frühling printemps primavera
summer: sommer été verano estate
autumn: herbst automne otoño autunno fall
winter: hiver invierno inverno
"""
TRANSLATIONS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    choice: tuple(others.split()) for choice, others in (row.split(":", 1) for row in _ROWS.strip().splitlines())
} | {code.casefold(): words for code, words in CURRENCIES.items()})  # fmt: skip
"""A choice -> words for it in German, French, Spanish and Italian, and English synonyms."""
