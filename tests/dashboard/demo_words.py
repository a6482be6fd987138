"""What people and bots say in the demo: three languages, long and short, as it is in life."""

PEOPLE: tuple[tuple[int, str, str, str | None], ...] = (
    (40_100_101, "Leila Karimi", "fa", "leila_k"),
    (40_100_102, "رضا محمدی", "fa", None),
    (40_100_103, "نسترن", "fa", "nastaran"),
    (40_100_104, "Анна Соколова", "ru", "anna_sok"),
    (40_100_105, "Дмитрий", "ru", None),
    (40_100_106, "Tom Becker", "en", "tombecker"),
    (40_100_107, "Grace Okafor", "en", "grace"),
    (40_100_108, "امیر", "fa", "amir_dev"),
    (40_100_109, "Ольга Павлова", "ru", "olga_p"),
    (40_100_110, "Maximilian Featherstonehaugh-Cholmondeley", "en", None),
    (40_100_111, "سارا احمدی", "fa", "sara_a"),
    (40_100_112, "Ivan", "ru", "ivan77"),
)

SAID: tuple[str, ...] = (
    "Your order #10482 is on its way and will be with you tomorrow between 10 and 12.",
    "سفارش شما آماده است. می‌توانید از ساعت ۱۶ آن را تحویل بگیرید.",
    "Ваш заказ №10483 собран и передан курьеру. Хорошего дня!",
    "The code to sign in is 481 516. It is good for five minutes; give it to nobody.",
    "سلام رضا! پرداخت شما با موفقیت انجام شد. رسید: PK-20931",
    "Напоминаем: приём завтра в 09:30, кабинет 214.",
    "Build 7312 of checkout-service passed: 418 tests, 3 min 12 s.",
    "نوبت شما برای فردا ساعت ۹:۳۰ ثبت شد.",
    "Счёт за октябрь готов: 1 240,00 ₽. Оплатить до 25 ноября.",
    "Thanks for writing! Somebody of our team answers within the hour.",
    "قیمت دلار: ۶۱٬۲۵۰ تومان — به‌روزرسانی ساعت ۱۴",
    "Ваша посылка ждёт вас в пункте выдачи на Ленина, 14. Код получения: 5512.",
)

ASKED: tuple[str, ...] = (
    "/start spring",
    "Where is my order?",
    "سلام، سفارش من کجاست؟",
    "Здравствуйте, можно перенести доставку на вечер?",
    "Thank you!",
    "ممنون، خیلی سریع بود",
    "Спасибо, всё получила",
    "/help",
    "I would like to return the blue one, it is a size too small. Can I do that in the shop as well?",
    "یک سوال درباره فاکتور ماه قبل دارم",
    "/start poster",
    "Когда вы открыты?",
)

TRACE = """Traceback (most recent call last):
  File "/srv/shop/bot/handlers.py", line 88, in on_order
    order = await orders.find(text)
  File "/srv/shop/bot/orders.py", line 41, in find
    return by_number[int(text)]
ValueError: invalid literal for int() with base 10: 'Where is my order?'
"""
